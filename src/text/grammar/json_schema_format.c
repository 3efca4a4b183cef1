/* SPDX-License-Identifier: Apache-2.0
 * 'format' as regular expressions. Each allows no more than its standard does and may allow less: no
 * leap seconds, no years before 1000, host names that are not in Punycode. */
#include "text/grammar/json_schema_impl.h"

#include <stdio.h>

#define YEAR "[12]\\d{3}"
#define DATE                                                          \
    "(?:" YEAR "-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\\d|3[01])|"     \
    "(?:0[469]|11)-(?:0[1-9]|[12]\\d|30)|02-(?:0[1-9]|1\\d|2[0-8]))|" \
    "(?:[12]\\d(?:0[48]|[2468][048]|[13579][26])|(?:12|16|20|24|28)00)-02-29)"
#define HOUR  "(?:[01]\\d|2[0-3])"
#define CLOCK HOUR ":[0-5]\\d:[0-5]\\d(?:\\.\\d{1,9})?"
#define ZONE  "(?:Z|[+-]" HOUR ":[0-5]\\d)"
#define BYTE  "(?:\\d|[1-9]\\d|1\\d\\d|2[0-4]\\d|25[0-5])"
#define IPV4  "(?:" BYTE "\\.){3}" BYTE
#define HEX4  "[0-9a-fA-F]{1,4}"
#define IPV6                                                                                 \
    "(?:(?:" HEX4 ":){7}" HEX4 "|(?:" HEX4 ":){1,7}:|(?:" HEX4 ":){1,6}:" HEX4 "|(?:" HEX4   \
    ":){1,5}(?::" HEX4 "){2}|(?:" HEX4 ":){1,4}(?::" HEX4 "){3}|(?:" HEX4 ":){1,3}(?::" HEX4 \
    "){4}|(?:" HEX4 ":){1,2}(?::" HEX4 "){5}|" HEX4 ":(?::" HEX4 "){6}|:(?:(?::" HEX4        \
    "){1,7}|:)|(?:" HEX4 ":){6}" IPV4 "|::(?:[fF]{4}:)?" IPV4 ")"
#define LABEL     "[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?"
#define WORD      "[a-zA-Z0-9]+(?:-[a-zA-Z0-9]+)*"
#define HOST      "(?:" WORD "\\.)*[a-zA-Z][a-zA-Z0-9]*(?:-[a-zA-Z0-9]+)*"
#define ATOM      "[a-zA-Z0-9_+-]+" /* what zod 3 takes as well */
#define EMAIL     ATOM "(?:\\." ATOM ")*@(?:" WORD "\\.)+[a-zA-Z]{2,}"
#define URI_CHAR  "(?:[a-zA-Z0-9._~!$&'()*+,;=:@-]|%[0-9a-fA-F]{2})"
#define URI_PLAIN "(?:[a-zA-Z0-9._~!$&'()*+,;=@-]|%[0-9a-fA-F]{2})"
#define URI_PORT  "(?::[1-9]\\d{0,3}|:[1-5]\\d{4})?"
#define URI_USER  "(?:[a-zA-Z0-9._~-]+(?::[a-zA-Z0-9._~-]*)?@)?"
#define URI_HOST  URI_USER "(?:" HOST "|" IPV4 "|\\[" IPV6 "\\])" URI_PORT
#define URI_TAIL  "(?:\\?(?:" URI_CHAR "|[/?])*)?(?:#(?:" URI_CHAR "|[/?])*)?"
#define URI_PATH  "(?:/" URI_CHAR "*)*"
#define URI                                                                                   \
    "[a-zA-Z][a-zA-Z0-9+.-]*:(?://" URI_HOST URI_PATH "|/" URI_CHAR "+" URI_PATH "|" URI_CHAR \
    "+" URI_PATH ")" URI_TAIL
#define URI_REFERENCE \
    "(?:" URI "|(?:(?://" URI_HOST ")?" URI_PATH "|" URI_PLAIN "+" URI_PATH ")" URI_TAIL ")"
#define POINTER  "(?:/(?:[^~/]|~[01])*)*"
#define BASE64   "(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?"
#define HEX(n)   "[0-9a-fA-F]{" #n "}"
#define UUID     HEX(8) "-" HEX(4) "-" HEX(4) "-" HEX(4) "-" HEX(12)
#define VARIABLE "[a-zA-Z0-9_]+(?::[1-9]\\d{0,3}|\\*)?"
#define TEMPLATE                                                                          \
    "(?:[a-zA-Z0-9._~:/?#\\[\\]@!$&()*+,;=-]|%[0-9a-fA-F]{2}|\\{[+#./;?&=,!@|]?" VARIABLE \
    "(?:," VARIABLE ")*\\})*"
/* plain characters, escapes and small classes, each perhaps repeated */
#define REGEX                                                                        \
    "\\^?(?:(?:[a-zA-Z0-9 _@#%&=<>,;:!~\"'-]|\\\\[dDwWsS.|()\\[\\]{}*+?^$\\\\]|\\.|" \
    "\\[\\^?(?:[a-zA-Z0-9_ ]|\\\\[dws])+\\])(?:[*+?]|\\{\\d{1,2}\\})?)*\\$?"

static const struct {
    const char *name, *regex;
} formats[] = {
    {"date", DATE},
    {"time", CLOCK ZONE},
    {"iso-time", CLOCK ZONE "?"},
    {"date-time", DATE "T" CLOCK ZONE},
    {"iso-date-time", DATE "T" CLOCK ZONE},
    {"duration", "P(?:\\d{1,9}W|(?:\\d{1,9}Y(?:\\d{1,9}M)?(?:\\d{1,9}D)?|\\d{1,9}M(?:\\d{1,9}"
                 "D)?|\\d{1,9}D)(?:T(?:\\d{1,9}H(?:\\d{1,9}M)?(?:\\d{1,9}S)?|\\d{1,9}M(?:\\d{"
                 "1,9}S)?|\\d{1,9}S))?|T(?:\\d{1,9}H(?:\\d{1,9}M)?(?:\\d{1,9}S)?|\\d{1,9}M(?:"
                 "\\d{1,9}S)?|\\d{1,9}S))"},
    {"uuid", UUID},
    {"uuid1", HEX(8) "-" HEX(4) "-1" HEX(3) "-[89abAB]" HEX(3) "-" HEX(12)},
    {"uuid3", HEX(8) "-" HEX(4) "-3" HEX(3) "-[89abAB]" HEX(3) "-" HEX(12)},
    {"uuid4", HEX(8) "-" HEX(4) "-4" HEX(3) "-[89abAB]" HEX(3) "-" HEX(12)},
    {"uuid5", HEX(8) "-" HEX(4) "-5" HEX(3) "-[89abAB]" HEX(3) "-" HEX(12)},
    {"uuid7", HEX(8) "-" HEX(4) "-7" HEX(3) "-[89abAB]" HEX(3) "-" HEX(12)},
    {"email", EMAIL},
    {"idn-email", EMAIL},
    {"hostname", LABEL "(?:\\." LABEL "){0,2}"},
    {"idn-hostname", LABEL "(?:\\." LABEL "){0,2}"},
    {"ipv4", IPV4},
    {"ipv6", IPV6},
    {"uri", URI},
    {"iri", URI},
    {"url", "(?:https?|ftp)://(?:" WORD "\\.)+[a-z]{2,}" URI_PORT URI_PATH URI_TAIL},
    {"uri-reference", URI_REFERENCE},
    {"iri-reference", URI_REFERENCE},
    {"uri-template", TEMPLATE},
    {"json-pointer", POINTER},
    {"json-pointer-uri-fragment", "#(?:/(?:[a-zA-Z0-9._!$&'()*+,;:=@-]|%[0-9a-fA-F]{2}|~[01])*)*"},
    {"relative-json-pointer", "(?:0|[1-9]\\d{0,3})(?:#|" POINTER ")"},
    {"regex", REGEX},
    {"byte", BASE64},
    {"base64", BASE64}};

const struct bn_re *bn_schema_format(struct bn_schema *s, const char *name)
{
    for (size_t i = 0; i < BN_ARRAY_LEN(formats); i++)
        if (strcmp(formats[i].name, name) == 0) return bn_re_known(s->b, formats[i].regex);
    return NULL;
}
