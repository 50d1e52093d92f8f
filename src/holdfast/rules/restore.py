"""When a retained message of the past is put back, and for how long: one rule for the API, the command line and Spark.

Asked for each topic, in this order:

| the message of the past                         | what is retained now      | verdict  |
|-------------------------------------------------|---------------------------|----------|
| has expired by now                              | anything                  | EXPIRED  |
| lives, or never expires                         | the same content          | PRESENT  |
| lives, or never expires                         | something else            | PRESENT, with `replace` RESTORE |
| lives, or never expires                         | nothing                   | RESTORE  |

The same content is the same payload, QoS, content type, response topic, correlation data, payload format and user
properties in their order. Who wrote it, when, and how long it lives make no difference: a message that is there is not
published again to change its expiry.

What is put back lives for the time that it had left, in whole seconds rounded up, so at least one: a message that lives
is never called expired. It makes no difference whether its publisher or the broker had chosen that time.

A message that is to be put back may still be refused: for want of rights, because the topic is the broker's own, by a
limit or a policy. That is counted as REFUSED, and is known only after trying, rights and the broker's topics excepted.
"""

from typing import Final

RESTORE: Final = "restored"
PRESENT: Final = "present"
EXPIRED: Final = "expired"
REFUSED: Final = "refused"

NEVER: Final = -1


def verdict(expires_at_ms: int, same: bool, occupied: bool, replace: bool, now_ms: int) -> str:
    """RESTORE, PRESENT or EXPIRED for one topic. `expires_at_ms` is the past message's, 0 when it never expires;
    `occupied` says whether anything is retained now, `same` whether that has the same content.
    """
    if expires_at_ms and expires_at_ms <= now_ms:
        return EXPIRED
    if occupied and (same or not replace):
        return PRESENT
    return RESTORE


def seconds_left(expires_at_ms: int, now_ms: int) -> int:
    """The expiry interval to publish a living message with: whole seconds, rounded up; NEVER when it has no end."""
    if not expires_at_ms:
        return NEVER
    return max(1, -((now_ms - expires_at_ms) // 1000))
