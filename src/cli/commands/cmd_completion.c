/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd_completion.c: `bitnet completion`: a script for a shell, and the answers to what the scripts ask. They
 * know nothing themselves, so that they never fall behind the program.
 */
#include "cli/core/command.h"
#include "cli/core/complete.h"
#include "cli/options/hub_places.h"
#include "hub/catalogue.h"
#include "hub/local.h"
#include <stdlib.h>

struct completion_config {
    bool line;
};

static const char for_bash[] = "# bash completion for bitnet: source <(bitnet completion bash)\n"
                               "_bitnet() {\n"
                               "    local cur=${COMP_WORDS[COMP_CWORD]} line beside=none\n"
                               "    [ \"$cur\" != = ] || cur=\n"
                               "    COMPREPLY=()\n"
                               "    while IFS= read -r line; do\n"
                               "        case $line in\n"
                               "        :*) beside=${line#:} ;;\n"
                               "        *) COMPREPLY+=(\"${line%%$'\\t'*}\") ;;\n"
                               "        esac\n"
                               "    done < <(\"${COMP_WORDS[0]}\" completion --line -- "
                               "\"${COMP_WORDS[@]:1:COMP_CWORD}\" 2>/dev/null)\n"
                               "    [ \"$beside\" = none ] && return\n"
                               "    compopt -o filenames 2>/dev/null\n"
                               "    while IFS= read -r line; do COMPREPLY+=(\"$line\"); done < <(\n"
                               "        case $beside in\n"
                               "        files) compgen -f -- \"$cur\" ;;\n"
                               "        dirs) compgen -d -- \"$cur\" ;;\n"
                               "        models)\n"
                               "            compgen -d -- \"$cur\"\n"
                               "            compgen -f -X '!*.gguf' -- \"$cur\"\n"
                               "            compgen -f -X '!*.safetensors' -- \"$cur\"\n"
                               "            ;;\n"
                               "        esac\n"
                               "    )\n"
                               "}\n"
                               "complete -F _bitnet bitnet\n";

static const char for_zsh[] =
    "#compdef bitnet\n"
    "# zsh completion for bitnet: source <(bitnet completion zsh), or as _bitnet in a folder of "
    "$fpath\n"
    "_bitnet() {\n"
    "    local line beside=none\n"
    "    local -a found\n"
    "    for line in \"${(@f)$(\"${words[1]}\" completion --line -- \"${(@)words[2,CURRENT]}\" "
    "2>/dev/null)}\"; do\n"
    "        case $line in\n"
    "        :*) beside=${line#:} ;;\n"
    "        *$'\\t'*) found+=(\"${${line%%$'\\t'*}//:/\\\\:}:${line#*$'\\t'}\") ;;\n"
    "        ?*) found+=(\"${line//:/\\\\:}\") ;;\n"
    "        esac\n"
    "    done\n"
    "    (( ${#found} )) && _describe -V bitnet found\n"
    "    [[ $beside != none ]] && compset -P '--*='\n"
    "    case $beside in\n"
    "    files) _files ;;\n"
    "    dirs) _files -/ ;;\n"
    "    models) _files -g '*.(gguf|safetensors)' ;;\n"
    "    esac\n"
    "}\n"
    "if [ \"$funcstack[1]\" = _bitnet ]; then _bitnet \"$@\"; else compdef _bitnet bitnet; fi\n";

static const char for_fish[] =
    "# fish completion for bitnet: bitnet completion fish | source\n"
    "function __bitnet_complete\n"
    "    set -l words (commandline -opc)\n"
    "    set -l cur (commandline -ct)\n"
    "    for line in ($words[1] completion --line -- $words[2..-1] \"$cur\" 2>/dev/null)\n"
    "        switch $line\n"
    "            case :files\n"
    "                __fish_complete_path \"$cur\"\n"
    "            case :dirs\n"
    "                __fish_complete_directories \"$cur\"\n"
    "            case :models\n"
    "                __fish_complete_directories \"$cur\"\n"
    "                __fish_complete_path \"$cur\" | string match -r "
    "'.*\\.(?:gguf|safetensors)(?:\\t.*)?$'\n"
    "            case ':*'\n"
    "            case '*'\n"
    "                echo $line\n"
    "        end\n"
    "    end\n"
    "end\n"
    "complete -c bitnet -f -a '(__bitnet_complete)'\n";

static const struct opt table[] = {
    {.kind = OPT_FLAG,
     .name = "line",
     .help =
         "what the scripts ask: the words behind -- are those typed behind 'bitnet' so far; prints "
         "what the last one may become",
     .offset = offsetof(struct completion_config, line)},
    {.kind = OPT_END},
};
static const struct opt_part parts[] = {{"Completion", table, 0}, {NULL, NULL, 0}};

struct names {
    complete_offer_fn *offer;
    void *to;
    bool known;
};

static bool see_model(void *user, const struct hub_local *l)
{
    const struct names *n = user;
    char size[TERM_SIZE_BYTES], text[64];
    snprintf(text, sizeof text, "%s, %s", l->kind, term_size(size, l->bytes));
    bool again = n->known && hub_catalogue_find(l->name);
    if (!again && !strpbrk(l->name, " \t\n")) n->offer(n->to, l->name, text);
    return true;
}

static void offer_names(bool known, complete_offer_fn *offer, void *to)
{
    const struct hub_model *m;
    struct hub_places *p;
    struct names n = {offer, to, known};
    for (size_t i = 0; known && (m = hub_catalogue_at(i)); i++) offer(to, m->name, m->what);
    if (hub_places_new(&p) == EXIT_DONE) hub_local_each(p, see_model, &n);
    free(p);
}

static int run(void *config, const struct arg_words *words)
{
    static const struct {
        const char *shell, *script;
    } scripts[] = {{"bash", for_bash}, {"zsh", for_zsh}, {"fish", for_fish}};
    const struct completion_config *c = config;
    if (c->line) {
        complete_print(stdout, words->items, words->n, offer_names);
        return EXIT_DONE;
    }
    if (words->n == 0) return term_usage("completion", "name the shell: bash, zsh or fish");
    if (words->n > 1)
        return term_usage("completion", "'%s' is one argument too many", words->items[1]);
    for (size_t i = 0; i < BN_ARRAY_LEN(scripts); i++)
        if (strcmp(words->items[0], scripts[i].shell) == 0) {
            fputs(scripts[i].script, stdout);
            return EXIT_DONE;
        }
    return term_usage("completion", "there is no script for '%s'; bash, zsh and fish exist",
                      words->items[0]);
}

const struct command cmd_completion = {
    .name = "completion",
    .usage = "bash|zsh|fish",
    .about =
        "\n"
        "Prints a script that makes a shell complete commands, options, their values and model "
        "files when\n"
        "Tab is pressed. Installed packages have done this already; otherwise, for this shell "
        "only:\n"
        "\n"
        "  source <(bitnet completion bash)\n"
        "  source <(bitnet completion zsh)\n"
        "  bitnet completion fish | source\n"
        "\n"
        "and for good:\n"
        "\n"
        "  bitnet completion bash > ~/.local/share/bash-completion/completions/bitnet\n"
        "  bitnet completion zsh > ~/.zfunc/_bitnet          # a folder of $fpath\n"
        "  bitnet completion fish > ~/.config/fish/completions/bitnet.fish\n",
    .first_word = "bash|zsh|fish",
    .parts = parts,
    .config_bytes = sizeof(struct completion_config),
    .max_words = 4096,
    .no_settings = true,
    .run = run,
};
