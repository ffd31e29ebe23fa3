"""Becomes a server: stores its own process id first, so that every running server is known to its folder.

Run as a script with bare Python: ``launcher.py FOLDER USER PROGRAM ARGUMENT...`` (an empty USER: the current user).
"""

from __future__ import annotations

import json
import os
import sys


def main(folder: str, user: str, command: list[str]) -> None:
    """Store the process id, enter the folder, send all output to its log and become the server."""
    os.chdir(folder)
    log = os.open("log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for opened, standard in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(opened, standard)
    with open("service.json", encoding="utf-8") as stream:
        state = json.load(stream)
    with open("/proc/self/stat", encoding="utf-8") as stream:
        started = int(stream.read().rpartition(")")[2].split()[19])
    with open(".service.json", "w", encoding="utf-8") as stream:
        json.dump({**state, "pid": os.getpid(), "started": started}, stream)
        stream.flush()
        os.fsync(stream.fileno())
    os.replace(".service.json", "service.json")
    if user != "":
        import pwd

        account = pwd.getpwnam(user)
        os.initgroups(user, account.pw_gid)
        os.setgid(account.pw_gid)
        os.setuid(account.pw_uid)
    os.execv(command[0], command)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
