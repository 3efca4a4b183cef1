/* SPDX-License-Identifier: Apache-2.0 */
#include "hub/remote.h"

#include "base/buf.h"
#include "hub/net/retry.h"
#include <stdio.h>
#include <stdlib.h>

enum { REPLY_BYTES = 32 << 20, MAX_PAGES = 200, MANIFEST_BYTES = 1 << 20 };

/* ------------------------------------------------------------------ refusals */

static bitnet_status refused_by_hub(const struct hub_conn *c, const char *code, const char *repo,
                                    const char *what, bitnet_error *err)
{
    const char *end = c->net->places->endpoint;
    bool token = c->net->places->token[0];
    if (strcmp(code, "GatedRepo") == 0)
        return bn_fail(err, BITNET_E_UNSUPPORTED,
                       "%s is gated: accept its conditions at %s/%s, then %s", repo, end, repo,
                       token ? "try again; the token in use must belong to that account"
                             : "set HF_TOKEN to a token of your account");
    if (strcmp(code, "RevisionNotFound") == 0)
        return bn_fail(err, BITNET_E_ARG, "%s has no such branch, tag or commit", what);
    if (strcmp(code, "EntryNotFound") == 0)
        return bn_fail(err, BITNET_E_ARG, "%s has no such file", what);
    if (strcmp(code, "DisabledRepo") == 0)
        return bn_fail(err, BITNET_E_UNSUPPORTED, "%s is disabled on the hub", repo);
    return bn_fail(err, BITNET_E_ARG, "there is no repository %s on %s%s", repo, end,
                   token ? ", or the token in use may not see it"
                         : "; if it is private, set HF_TOKEN");
}

bitnet_status hub_remote_refused(const struct hub_conn *c, const char *repo, const char *what,
                                 bitnet_error *err)
{
    const struct http_reader *r = &c->reader;
    const char *code = http_header(r, "x-error-code"), *wait = http_header(r, "retry-after");
    bool hub = hub_url_same_origin(&c->at, &c->net->endpoint);
    if (hub && r->status == 401 && !code && c->net->places->token[0])
        return bn_fail(err, BITNET_E_UNSUPPORTED,
                       "%s does not take the token in use (HF_TOKEN, or the file 'token' in "
                       "HF_HOME); make a new one, or unset it",
                       c->at.host);
    if (*repo && hub && ((code && r->status < 500 && r->status != 429) || r->status == 401))
        return refused_by_hub(c, code ? code : "RepoNotFound", repo, what, err);
    if (r->status == 429)
        return bn_fail(err, BITNET_E_IO, "%s asks to come back later%s%s%s", c->at.host,
                       wait ? " (in " : "", wait ? wait : "", wait ? " s)" : "");
    if (r->status >= 500)
        return bn_fail(err, BITNET_E_IO, "%s answers with an error of its own: %d %s", c->at.host,
                       r->status, http_reason(r->status));
    if (r->status == 404 || r->status == 410)
        return bn_fail(err, BITNET_E_ARG, "there is no %s on %s", what, c->at.host);
    return bn_fail(err, BITNET_E_UNSUPPORTED, "%s refuses %s: %d %s", c->at.host, what, r->status,
                   http_reason(r->status));
}

/* ------------------------------------------------------------------ replies in JSON */

struct json_ask {
    struct hub_url url;
    const char *accept, *repo, *what;
    struct bn_buf body;
    char next[HUB_TARGET_BYTES]; /* of the header Link; "" */
};

/* <URL>; rel="next" */
static void read_link(char out[HUB_TARGET_BYTES], const char *link)
{
    *out = 0;
    const char *end = link ? strchr(link, '>') : NULL;
    if (!end || *link != '<' || !strstr(end, "rel=\"next\"") || end - link >= HUB_TARGET_BYTES)
        return;
    snprintf(out, HUB_TARGET_BYTES, "%.*s", (int)(end - link - 1), link + 1);
}

static bitnet_status ask_json(void *user, struct hub_conn *c, bitnet_error *err)
{
    struct json_ask *a = user;
    struct hub_url url = a->url;
    const struct hub_ask q = {.accept = a->accept, .follow = true};
    bn_buf_clear(&a->body);
    BN_TRY(hub_conn_ask(c, &url, &q, err));
    int status = c->reader.status;
    if (status != 200) return hub_remote_refused(c, a->repo, a->what, err);
    read_link(a->next, http_header(&c->reader, "link"));
    return hub_conn_read_all(c, &a->body, err);
}

static bitnet_status get_json(struct bn_json **out, struct json_ask *a, struct hub_conn *c,
                              bitnet_error *err)
{
    *out = NULL;
    BN_TRY(hub_retry(c, ask_json, a, err));
    char what[HUB_HOST_BYTES + 32];
    snprintf(what, sizeof what, "the reply of %.200s", a->url.host);
    return bn_json_parse(out, a->body.data ? a->body.data : "", a->body.len, 0, what, err);
}

/* ------------------------------------------------------------------ the hub */

static bitnet_status api_url(struct hub_url *out, const struct hub_net *net, const char *repo,
                             const char *what, const char *revision, const char *query,
                             bitnet_error *err)
{
    struct bn_buf b;
    bn_buf_init(&b, HUB_TARGET_BYTES);
    bn_buf_printf(&b, "%s/api/models/%s/%s/", net->places->endpoint, repo, what);
    hub_url_escape(&b, revision, false);
    bn_buf_puts(&b, query);
    bitnet_status s = b.failed ? bn_fail(err, BITNET_E_LIMIT, "the address of %s is too long", repo)
                               : hub_url_parse(out, b.data, err);
    bn_buf_free(&b);
    return s;
}

bitnet_status hub_remote_url(struct hub_url *out, const struct hub_net *net, const char *repo,
                             const char *commit, const char *path, bitnet_error *err)
{
    struct bn_buf b;
    bn_buf_init(&b, HUB_TARGET_BYTES);
    bn_buf_printf(&b, "%s/%s/resolve/%s/", net->places->endpoint, repo, commit);
    hub_url_escape(&b, path, true);
    bitnet_status s = b.failed ? bn_fail(err, BITNET_E_LIMIT, "the address of %s is too long", path)
                               : hub_url_parse(out, b.data, err);
    bn_buf_free(&b);
    return s;
}

static void read_info(struct hub_remote *out, const struct bn_json *info)
{
    const struct bn_json *card = bn_json_get(info, "cardData"), *tag,
                         *gated = bn_json_get(info, "gated");
    const char *licence = bn_json_text(bn_json_get(card, "license"));
    const char *named = bn_json_text(bn_json_get(card, "license_name"));
    size_t i;
    if (licence && strcmp(licence, "other") == 0 && named) licence = named;
    bn_json_each(bn_json_get(info, "tags"), i, tag)
    {
        const char *text = bn_json_text(tag);
        if (!licence && text && strncmp(text, "license:", 8) == 0) licence = text + 8;
    }
    snprintf(out->licence, sizeof out->licence, "%s", licence ? licence : "");
    out->gated = bn_json_is_true(gated) || bn_json_is_string(gated);
    out->downloads = bn_json_integer(bn_json_get(info, "downloads"));
}

static bitnet_status look_revision(struct hub_remote *out, struct json_ask *a, struct hub_conn *c,
                                   const struct hub_name *name, bitnet_error *err)
{
    struct bn_json *info;
    BN_TRY(api_url(&a->url, c->net, name->repo, "revision",
                   name->revision[0] ? name->revision : "main", "", err));
    BN_TRY(get_json(&info, a, c, err));
    const char *sha = bn_json_text(bn_json_get(info, "sha"));
    bool good = sha && hub_is_hex(sha, HUB_COMMIT_BYTES - 1);
    if (good) snprintf(out->commit, sizeof out->commit, "%s", sha);
    read_info(out, info);
    bn_json_free(info);
    if (!good)
        return bn_fail(err, BITNET_E_FORMAT, "%s names no commit for %s", c->at.host, name->repo);
    return BITNET_OK;
}

static bitnet_status add_entry(struct hub_files *f, const struct bn_json *e, bitnet_error *err)
{
    const char *type = bn_json_text(bn_json_get(e, "type")),
               *path = bn_json_text(bn_json_get(e, "path"));
    const struct bn_json *lfs = bn_json_get(e, "lfs");
    const char *digest = bn_json_text(bn_json_get(lfs, "oid"));
    const struct bn_json *size = bn_json_get(bn_json_is_object(lfs) ? lfs : e, "size");
    if (!type || strcmp(type, "file") != 0) return BITNET_OK;
    if (!digest) digest = bn_json_text(bn_json_get(e, "oid"));
    int64_t bytes = bn_json_integer(size);
    if (!path || !hub_path_is_safe(path) || bytes < 0 || !digest ||
        (!hub_is_hex(digest, 64) && !hub_is_hex(digest, 40)))
        return bn_fail(err, BITNET_E_FORMAT,
                       "the hub lists a file that cannot be taken: path '%.200s'",
                       path ? path : "");
    return hub_files_add(f, path, (uint64_t)bytes, digest, err);
}

static bitnet_status look_tree(struct hub_remote *out, struct json_ask *a, struct hub_conn *c,
                               const struct hub_name *name, bitnet_error *err)
{
    BN_TRY(api_url(&a->url, c->net, name->repo, "tree", out->commit, "?recursive=true", err));
    for (int page = 0; page < MAX_PAGES; page++) {
        struct bn_json *entries, *e;
        size_t i;
        bitnet_status s = get_json(&entries, a, c, err);
        if (s == BITNET_OK && !bn_json_is_array(entries))
            s = bn_fail(err, BITNET_E_FORMAT, "%s lists no files of %s", c->at.host, name->repo);
        bn_json_each(entries, i, e) if (s == BITNET_OK) s = add_entry(&out->files, e, err);
        bn_json_free(entries);
        if (s != BITNET_OK || !a->next[0]) return s;
        struct hub_url here = a->url;
        BN_TRY(hub_url_join(&a->url, &here, a->next, err));
    }
    return bn_fail(err, BITNET_E_LIMIT, "%s has too many files to list", name->repo);
}

bitnet_status hub_remote_look(struct hub_remote *out, const struct hub_net *net,
                              const struct hub_name *name, bitnet_error *err)
{
    struct hub_conn *c = malloc(sizeof *c);
    struct json_ask *a = calloc(1, sizeof *a);
    bitnet_status s = c && a ? BITNET_OK : bn_fail_nomem(err, sizeof *c, "a connection");
    if (s == BITNET_OK) {
        char what[HUB_REPO_BYTES + HUB_REVISION_BYTES];
        snprintf(what, sizeof what, "%s%s%s", name->repo, name->revision[0] ? "@" : "",
                 name->revision);
        hub_conn_init(c, net, net->places->etag_timeout_s);
        bn_buf_init(&a->body, REPLY_BYTES);
        a->repo = name->repo;
        a->what = name->revision[0] ? what : name->repo;
        s = look_revision(out, a, c, name, err);
        a->what = name->repo;
        if (s == BITNET_OK) s = look_tree(out, a, c, name, err);
        bn_buf_free(&a->body);
        hub_conn_free(c);
    }
    free(a);
    free(c);
    return s;
}

void hub_remote_free(struct hub_remote *r)
{
    hub_files_free(&r->files);
    *r = (struct hub_remote){.gated = false};
}

/* ------------------------------------------------------------------ registries */

bitnet_status hub_registry_url(struct hub_url *out, const struct hub_name *name, const char *what,
                               bitnet_error *err)
{
    char text[HUB_URL_BYTES];
    snprintf(text, sizeof text, "https://%s/v2/%s/%s", name->host, name->repo, what);
    BN_TRY(hub_url_parse(out, text, err));
    if (!hub_url_is_loopback(out)) return BITNET_OK;
    /* registries on the machine itself speak plain HTTP, as Ollama's own client has it */
    snprintf(text, sizeof text, "http://%s/v2/%s/%s", name->host, name->repo, what);
    return hub_url_parse(out, text, err);
}

bitnet_status hub_registry_look(struct bn_buf *text, struct bn_json **manifest,
                                const struct hub_net *net, const struct hub_name *name,
                                bitnet_error *err)
{
    char what[HUB_TAG_BYTES + 16], shown[HUB_TYPED_BYTES];
    struct hub_conn *c = malloc(sizeof *c);
    struct json_ask *a = calloc(1, sizeof *a);
    bitnet_status s = c && a ? BITNET_OK : bn_fail_nomem(err, sizeof *c, "a connection");
    *manifest = NULL;
    bn_buf_init(text, MANIFEST_BYTES);
    if (s == BITNET_OK) {
        hub_name_text(shown, name);
        snprintf(what, sizeof what, "manifests/%s", name->tag);
        hub_conn_init(c, net, net->places->etag_timeout_s);
        bn_buf_init(&a->body, MANIFEST_BYTES);
        a->accept = "application/vnd.docker.distribution.manifest.v2+json";
        a->repo = "";
        a->what = shown;
        s = hub_registry_url(&a->url, name, what, err);
        if (s == BITNET_OK) s = get_json(manifest, a, c, err);
        *text = a->body;
        hub_conn_free(c);
    }
    free(a);
    free(c);
    return s;
}
