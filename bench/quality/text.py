#!/usr/bin/env python3
"""Makes the text that the lab trains on: text.py LINUX-SOURCE.tar.xz OUT [MEGABYTES]

The archive is in Debian's package linux-source-6.1, in /usr/src once it is installed. The text is C source, whole files in an order
that depends on their names alone, so that the held-out end is like the beginning.
"""

import hashlib
import sys
import tarfile


def main():
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    limit = int(float(sys.argv[3]) * 1e6) if len(sys.argv) == 4 else 60_000_000
    folders = ("kernel/", "mm/", "fs/", "net/", "lib/", "block/", "crypto/", "security/", "ipc/", "init/", "sound/core/")
    found = []
    with tarfile.open(sys.argv[1]) as archive:
        for member in archive:
            name = member.name.partition("/")[2]
            if member.isfile() and name.endswith(".c") and name.startswith(folders):
                found.append((hashlib.sha256(name.encode()).digest(), archive.extractfile(member).read()))
    text = b"".join(content for _, content in sorted(found))[:limit]
    if len(text) < limit:
        sys.exit(f"text.py: the archive holds only {len(text)} bytes of such files")
    with open(sys.argv[2], "wb") as out:
        out.write(text)


if __name__ == "__main__":
    main()
