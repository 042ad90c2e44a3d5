"""in_parallel.py JOBS COMMAND... -- FILE...: runs the command once a file, some at a time.

Prints the output of those that fail; exits with 1 if one did.
"""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor


def main(arguments: list[str]) -> int:
    jobs, rest = int(arguments[0]), arguments[1:]
    split = rest.index("--")
    command, files = rest[:split], rest[split + 1 :]
    if not files:
        raise SystemExit("in_parallel.py: no file to work on")

    def run(file: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*command, file], check=False, capture_output=True, text=True)

    failed = 0
    with ThreadPoolExecutor(jobs) as pool:
        for result in pool.map(run, files):
            if result.returncode:
                failed += 1
                print(result.stdout, result.stderr, sep="\n")
    print(f"{' '.join(command)}: {len(files)} files, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
