"""Where Debian's mosquitto is known to depart from the standard, so that TEST_BROKER=mosquitto shows only what is new.

Each row is the start of a test's name (with its case where only some fail) and what mosquitto does instead.
"""

KNOWN_DEVIATIONS = {
    "test_wrong_reserved_flags_close_the_connection": "ignores the flags of acknowledgements and PINGREQ",
    "test_malformed_packet_closes_the_connection_it_came_on[SUBACK]": "ignores packets that only a server sends",
    "test_malformed_packet_closes_the_connection_it_came_on[UNSUBACK]": "ignores packets that only a server sends",
    "test_malformed_packet_closes_the_connection_it_came_on[PINGRESP]": "ignores packets that only a server sends",
    "test_malformed_packet_closes_the_connection_it_came_on[PINGREQ with a body]": "ignores the body",
    "test_overlapping_subscriptions_deliver_at_the_highest_granted_qos": "uses the QoS of the first match",
    "test_will_is_published_when_the_connection_ends_without_disconnect[connect_twice]": "publishes no will",
    "test_nothing_of_a_malformed_subscribe_takes_effect": "keeps the filters before the malformed one",
    "test_text_frame": "takes text frames for binary ones",
    "test_silent_client_is_cut_off_after_one_and_a_half_keep_alives": "looks only every few seconds",
}
