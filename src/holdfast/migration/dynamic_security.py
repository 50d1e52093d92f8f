"""mosquitto's dynamic security: clients, groups and roles in one JSON file, as a password file and `[[access]]` rules.

There the rules of a client are those of its roles by priority, then those of its groups' roles; the first that matches
decides, and where none does a default for each kind of access. Here rules are a list, the first that matches decides:
so each client's rules are written out in their order, and the defaults come last.
"""

import json
from typing import Any, Final

from holdfast.broker.topics import is_valid_filter
from holdfast.errors import UsageError
from holdfast.identity.passwords import PBKDF2_MOST, is_known
from holdfast.migration.settings_files import FoundSettings

ACTIONS: Final = {
    "publishClientSend": ["publish", "retain"],
    "publishClientReceive": ["receive"],
    "subscribeLiteral": ["subscribe"],
    "subscribePattern": ["subscribe"],
}
UNASKED: Final = ("unsubscribeLiteral", "unsubscribePattern")
DEFAULTS: Final = {
    "publishClientSend": ["publish", "retain"],
    "publishClientReceive": ["receive"],
    "subscribe": ["subscribe"],
}
RULES_MOST: Final = 1_000_000

Table = dict[str, Any]


def is_dynamic_security(given: Any) -> bool:
    return isinstance(given, dict) and "roles" in given and ("clients" in given or "defaultACLAccess" in given)


def parse(text: str, name: str) -> Any:
    """Raises UsageError."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{name} is not JSON: {error}") from None


def add_dynamic_security(found: FoundSettings, given: Any, name: str) -> None:
    """Take users, rules and defaults. Raises UsageError where the file is not what it should be."""
    if not is_dynamic_security(given):
        raise UsageError(f"{name} is no file of mosquitto's dynamic security, expected clients and roles in it")
    Reader(found, given, name).read()


class Reader:
    def __init__(self, found: FoundSettings, given: Table, name: str) -> None:
        self.found = found
        self.name = name
        self.given = given
        self.roles = by_name(tables(given, "roles"), "rolename")
        self.groups = by_name(tables(given, "groups"), "groupname")
        self.access: list[Table] = []

    def read(self) -> None:
        found = self.found
        users = found.users if found.users is not None else {}
        banned: list[str] = []
        for client in tables(self.given, "clients"):
            username = client.get("username")
            if not isinstance(username, str) or not username or ":" in username or not username.isprintable():
                found.leave(self.name, "a client", "expected a user name without colons and control characters")
                continue
            found.lines += 1
            self.add_client(client, username, users)
            if client.get("disabled") is True:
                banned.append(username)
        group = self.given.get("anonymousGroup")
        if isinstance(group, str) and group in self.groups:
            self.add_rules("", self.roles_of(self.groups[group]))
        self.add_defaults()
        found.users = users
        found.tables["access"] = [*found.tables.get("access", []), *self.access]
        found.rules += len(self.access)
        if banned:
            found.values["bans.users"] = banned

    def add_client(self, client: Table, username: str, users: dict[str, str]) -> None:
        stored = stored_password(client)
        if stored is None:
            self.found.leave(
                f"{self.name}, client {username}",
                "password",
                "no hash that is known here: holdfast passwd sets a new one",
            )
        else:
            users[username] = stored
        if client.get("clientid"):
            self.found.leave(
                f"{self.name}, client {username}",
                f"clientid {client['clientid']}",
                "a client id for one user has no counterpart; auth.client_id binds the ids of all users to their names",
            )
        own = self.roles_of(client)
        for name in self.groups_of(client, username):
            own += self.roles_of(self.groups.get(name, {}))
        self.add_rules(username, own)

    def groups_of(self, client: Table, username: str) -> list[str]:
        """The groups of a client, highest priority first: it may name them, or they name it."""
        named = {name: priority_of(one) for name, one in by_name(tables(client, "groups"), "groupname").items()}
        for name, group in self.groups.items():
            for member in tables(group, "clients"):
                if member.get("username") == username:
                    named.setdefault(name, priority_of(member))
        return sorted(named, key=lambda name: (-named[name], name))

    def roles_of(self, holder: Table) -> list[Table]:
        found = []
        for entry in by_priority(tables(holder, "roles")):
            role = self.roles.get(text_at(entry, "rolename"))
            if role is None:
                self.found.leave(self.name, f"role {entry.get('rolename')}", "it is named and not in the file")
            else:
                found.append(role)
        return found

    def add_rules(self, username: str, roles: list[Table]) -> None:
        for role in roles:
            if role.get("allowwildcardsubs") is False:
                self.found.leave(
                    f"{self.name}, role {role.get('rolename')}",
                    "allowwildcardsubs false",
                    "wildcards may be subscribed to; what may be received is checked for each message",
                )
            acls = by_priority(tables(role, "acls"))
            # A literal filter is asked before any pattern of its role.
            for acl in sorted(acls, key=lambda acl: acl.get("acltype") != "subscribeLiteral"):
                self.add_rule(username, role, acl)

    def add_rule(self, username: str, role: Table, acl: Table) -> None:
        kind, topic_filter, allow = text_at(acl, "acltype"), acl.get("topic"), acl.get("allow") is True
        if kind in UNASKED:
            return  # whoever may subscribe may unsubscribe here
        where = f"{self.name}, role {role.get('rolename')}"
        valid = isinstance(topic_filter, str) and is_filter(topic_filter)
        if kind not in ACTIONS or not valid:
            if not allow:
                raise UsageError(
                    f"{where}: {kind} {topic_filter!r} denies something and has no counterpart; without it the others "
                    "would grant more than they should, so change it there first"
                )
            self.found.leave(
                where, f"{kind} {topic_filter}", "no kind of access, or no topic filter, that is known here"
            )
            return
        if len(self.access) >= RULES_MOST:
            raise UsageError(f"{self.name} makes more than {RULES_MOST} rules, expected fewer users or roles")
        permission = "allow" if allow else "deny"
        rule = {"permission": permission, "action": ACTIONS[kind], "filter": topic_filter, "user": username}
        if not self.access or self.access[-1] != rule:
            self.access.append(rule)

    def add_defaults(self) -> None:
        defaults = self.given.get("defaultACLAccess")
        for kind, actions in DEFAULTS.items():
            if isinstance(defaults, dict) and defaults.get(kind) is True:
                # `#` does not reach topics that begin with $. What no rule allows is denied.
                self.access.append({"permission": "allow", "action": actions, "filter": ["#", "$SYS/#"]})


def stored_password(client: Table) -> str | None:
    """The hash as a password file has it: dynamic security uses the same ones."""
    encoded = client.get("encoded_password")
    if isinstance(encoded, str):
        return encoded if "\n" not in encoded and is_known(encoded) else None
    iterations = client.get("iterations")
    if not isinstance(iterations, int) or not 0 < iterations <= PBKDF2_MOST:
        return None
    stored = f"$7${iterations}${client.get('salt')}${client.get('password')}"
    return stored if "\n" not in stored and is_known(stored) else None


def is_filter(text: str) -> bool:
    try:
        return is_valid_filter(text.encode(), 65536) and text.isprintable()
    except UnicodeEncodeError:
        return False


def tables(holder: Table, key: str) -> list[Table]:
    given = holder.get(key)
    return [one for one in given if isinstance(one, dict)] if isinstance(given, list) else []


def text_at(holder: Table, key: str) -> str:
    """Empty where there is no text."""
    given = holder.get(key)
    return given if isinstance(given, str) else ""


def by_name(entries: list[Table], key: str) -> dict[str, Table]:
    """Those that have a name; the others nobody can refer to."""
    return {name: entry for entry in entries if (name := text_at(entry, key))}


def by_priority(entries: list[Table]) -> list[Table]:
    """Highest first; by name where they are equal, and rules in the order of the file."""
    return sorted(entries, key=lambda entry: (-priority_of(entry), name_of(entry)))


def priority_of(entry: Table) -> int:
    given = entry.get("priority")
    return given if isinstance(given, int) else 0 if "acltype" in entry else -1


def name_of(entry: Table) -> str:
    return str(entry.get("rolename") or entry.get("groupname") or "")
