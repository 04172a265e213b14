"""SCRIPT: only the scripts of redis-py's locks are known."""

from __future__ import annotations

import hashlib

from penstock.servers.access import Right
from penstock.servers.resp.arguments import Text, Words
from penstock.servers.resp.commands.locks import SCRIPTS
from penstock.servers.resp.encoder import OK, Reply
from penstock.servers.resp.errors import CommandError, unknown_subcommand, wrong_arity
from penstock.servers.resp.session import ClientSession
from penstock.servers.resp.table import Order, command

FAMILY = "scripting"


@command("SCRIPT", Order.HERE, Right.NOTHING, FAMILY, usage="SCRIPT EXISTS sha1 [sha1 ...] | LOAD script | FLUSH")
def script(session: ClientSession, subcommand: Text, words: Words) -> Reply:
    """Check, load or flush scripts; only those of redis-py's locks are known."""
    match subcommand.upper():
        case "EXISTS":
            if not words:
                raise wrong_arity("script|exists")
            return [int(word.lower() in SCRIPTS) for word in words]
        case "FLUSH":  # the known scripts are built in
            if len(words) > 1 or (words and words[0].upper() not in (b"ASYNC", b"SYNC")):
                raise CommandError("ERR SCRIPT FLUSH only support SYNC|ASYNC option")
            return OK
        case "LOAD":
            if len(words) != 1:
                raise wrong_arity("script|load")
            digest = hashlib.sha1(words[0], usedforsecurity=False).hexdigest()
            if digest.encode() not in SCRIPTS:
                raise CommandError("ERR Lua scripts do not run here: only those of redis-py's locks are known")
            return digest
        case "HELP":
            return ["SCRIPT <subcommand>. Subcommands are:", "EXISTS", "FLUSH", "LOAD"]
        case _:
            raise unknown_subcommand("SCRIPT", subcommand.encode())
