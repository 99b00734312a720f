"""Keeps one Ray node alive until its standard input ends, which it does when the test ends in any way.

    python ray_node.py FOLDER            a head, its files in FOLDER
    python ray_node.py FOLDER ADDRESS    another node of the cluster at ADDRESS

Prints the number of the node's process group, then its address.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path


def main(folder: str, address: str | None = None) -> None:
    ray = str(Path(sys.executable).with_name("ray"))
    command = [ray, "start", "--num-cpus=1", "--object-store-memory=80000000", "--disable-usage-stats", "--block"]
    if address is None:
        command += ["--head", "--port=0", "--include-dashboard=false", f"--temp-dir={folder}"]
    else:
        command.append(f"--address={address}")
    with open(Path(folder, "head.log" if address is None else "node.log"), "wb") as log:
        node = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
    try:
        known = Path(folder, "ray_current_cluster")
        deadline = time.monotonic() + 120
        while address is None and not known.is_file() and node.poll() is None and time.monotonic() < deadline:
            time.sleep(0.1)
        sys.stdout.write(f"{node.pid} {address or '127.0.0.1:' + known.read_text().rpartition(':')[2]}\n")
        sys.stdout.flush()
        sys.stdin.read()
    finally:
        try:
            os.killpg(node.pid, signal.SIGKILL)  # the whole node: nothing of it leaves this group
        except ProcessLookupError:
            pass
        node.wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
