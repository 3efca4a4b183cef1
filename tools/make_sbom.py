#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The software bill of materials of the static program, as SPDX 2.3 JSON on standard output: the program, and the
libraries that were linked into it, with the versions of the Debian packages they came from.

usage: make_sbom.py VERSION PROGRAM
"""
import datetime
import hashlib
import json
import os
import pathlib
import subprocess
import sys

# package that has the static library, its licence; the libjs- ones are scripts that the pages contain
LINKED = [("libc6-dev", "LGPL-2.1-or-later"), ("libpcre2-dev", "BSD-3-Clause"), ("libutf8proc-dev", "MIT"),
          ("libevent-dev", "BSD-3-Clause"), ("libssl-dev", "Apache-2.0"), ("libjs-chart.js", "MIT"),
          ("libjs-highlight.js", "BSD-3-Clause"), ("libjs-katex", "MIT")]


def installed(package):
    told = subprocess.run(["dpkg-query", "-W", "-f", "${Version}", package], capture_output=True, text=True)
    return told.stdout.strip() if told.returncode == 0 else ""


version, program = sys.argv[1], pathlib.Path(sys.argv[2])
when = datetime.datetime.fromtimestamp(int(os.environ.get("SOURCE_DATE_EPOCH", "0")), datetime.timezone.utc)
digest = hashlib.sha256(program.read_bytes()).hexdigest()
packages = [{"SPDXID": "SPDXRef-bitnet", "name": "bitnet", "versionInfo": version, "downloadLocation": "NOASSERTION",
             "filesAnalyzed": False, "licenseConcluded": "Apache-2.0", "licenseDeclared": "Apache-2.0",
             "copyrightText": "NOASSERTION", "checksums": [{"algorithm": "SHA256", "checksumValue": digest}],
             "primaryPackagePurpose": "APPLICATION"}]
relations = [{"spdxElementId": "SPDXRef-DOCUMENT", "relationshipType": "DESCRIBES", "relatedSpdxElement": "SPDXRef-bitnet"}]
for name, licence in LINKED:
    found = installed(name)
    if not found:
        continue
    spdx = "SPDXRef-" + name.replace("+", "")
    packages.append({"SPDXID": spdx, "name": name, "versionInfo": found, "downloadLocation": "NOASSERTION",
                     "filesAnalyzed": False, "licenseConcluded": licence, "licenseDeclared": licence,
                     "copyrightText": "NOASSERTION",
                     "externalRefs": [{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl",
                                       "referenceLocator": f"pkg:deb/debian/{name}@{found}"}]})
    relations.append({"spdxElementId": spdx, "relationshipType": "STATIC_LINK", "relatedSpdxElement": "SPDXRef-bitnet"})
json.dump({"spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT",
           "name": f"bitnet-{version}", "documentNamespace": f"https://spdx.org/spdxdocs/bitnet-{version}-{digest[:16]}",
           "creationInfo": {"created": when.strftime("%Y-%m-%dT%H:%M:%SZ"), "creators": ["Tool: make_sbom.py"]},
           "packages": packages, "relationships": relations}, sys.stdout, indent=2)
print()
