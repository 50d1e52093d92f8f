"""MQTT 3.1.1: the clauses a server meets, one to a line: id, who is bound (S server, B both, C client), what it asks.

C clauses bind the client; they are here because a server sees the breach and has to answer it.
"""

TABLE = """
1.5.3-1 B Text is well-formed UTF-8 with no surrogates; whoever receives anything else closes the connection.
1.5.3-2 B Text holds no U+0000; whoever receives one closes the connection.
1.5.3-3 B A byte order mark inside text is the character U+FEFF and is passed on like any other.

2.2.2-1 B The low four bits of the first byte are as the table of packet types prescribes.
2.2.2-2 B A packet with other low bits ends the connection.
2.3.1-1 B SUBSCRIBE, UNSUBSCRIBE and PUBLISH above QoS 0 have a packet identifier other than 0.
2.3.1-2 C For each new packet the client picks an identifier that is not in use.
2.3.1-3 C A repeated packet keeps its identifier, which is free again once the handshake is over.
2.3.1-4 S For what it publishes above QoS 0 the server follows the same rules for identifiers.
2.3.1-5 B At QoS 0 there is no packet identifier in PUBLISH.
2.3.1-6 B PUBACK, PUBREC and PUBREL name the identifier of the PUBLISH they belong to.
2.3.1-7 S SUBACK and UNSUBACK name the identifier of the request they answer.

3.1.0-1 C A client begins with CONNECT.
3.1.0-2 S A client that sends CONNECT twice is cut off.
3.1.2-1 S A protocol name that is not MQTT is never served as if it were.
3.1.2-2 S A level that the server does not speak is answered with return code 1 and the end of the connection.
3.1.2-3 S The lowest connect flag is checked, and a client that sets it is cut off.
3.1.2-4 B Without clean session the stored session goes on, or a new one starts, and it outlives the connection.
3.1.2-5 S While such a client is away, QoS 1 and 2 messages for its subscriptions are kept for it.
3.1.2-6 B With clean session nothing old is used, and nothing is kept when the connection ends.
3.1.2-7 S Retained messages do not belong to a session and do not end with one.
3.1.2-8 S The will is kept with the connection and published at its end, unless a DISCONNECT removed it.
3.1.2-9 C When the will flag is set, its QoS and retain flags count and its topic and message follow.
3.1.2-10 S A will that was published or removed by DISCONNECT is gone.
3.1.2-11 C When the will flag is not set, its QoS and retain flags are 0 and its fields are missing.
3.1.2-12 S When the will flag is not set, the end of the connection publishes nothing.
3.1.2-13 C Will QoS is 0 when the will flag is not set.
3.1.2-14 C Will QoS is never 3.
3.1.2-15 C Will retain is 0 when the will flag is not set.
3.1.2-16 S A will without will retain goes out as an ordinary message.
3.1.2-17 S A will with will retain goes out as a retained message.
3.1.2-18 C Without the user name flag there is no user name.
3.1.2-19 C With the user name flag there is a user name.
3.1.2-20 C Without the password flag there is no password.
3.1.2-21 C With the password flag there is a password.
3.1.2-22 C The password flag is set only together with the user name flag.
3.1.2-24 S A client that is silent for one and a half times its keep alive is cut off as if the network had failed.
3.1.3-1 C The payload of CONNECT has client id, will topic, will message, user name, password, in this order.
3.1.3-2 B The client id tells which session a client means.
3.1.3-3 C The client id is always there and comes first.
3.1.3-4 C The client id is UTF-8 text.
3.1.3-5 S Every client id of 1 to 23 letters and digits is accepted.
3.1.3-6 S A server that takes an empty client id gives that client one of its own, not shared with another.
3.1.3-7 C An empty client id goes with clean session only.
3.1.3-8 S An empty client id without clean session gets return code 2 and the end of the connection.
3.1.3-9 S A client id that the server turns down gets return code 2 and the end of the connection.
3.1.3-10 C The will topic is UTF-8 text.
3.1.3-11 C The user name is UTF-8 text.
3.1.4-1 S A CONNECT that breaks the format ends the connection, with no CONNACK.
3.1.4-2 S A second connection with the same client id ends the first.
3.1.4-3 S Clean session is carried out as its flag says.
3.1.4-4 S A good CONNECT is answered with CONNACK and return code 0.
3.1.4-5 S Once CONNECT is refused, nothing that came after it has any effect.

3.2.0-1 S CONNACK comes before any other packet of the server.
3.2.2-1 S With clean session CONNACK says that no session was there.
3.2.2-2 S Without clean session CONNACK says so when a session was stored.
3.2.2-3 S With no stored session CONNACK says that none was there.
3.2.2-4 S A refusing CONNACK never says that a session was there.
3.2.2-5 S After a refusing CONNACK the server closes the connection.
3.2.2-6 S If no return code fits, the connection is closed with no CONNACK.

3.3.1-1 B A PUBLISH that is sent again has DUP set.
3.3.1-2 B DUP is never set at QoS 0.
3.3.1-3 S DUP towards a subscriber tells about this delivery and is not copied from the publisher.
3.3.1-4 B A PUBLISH with QoS 3 ends the connection.
3.3.1-5 S A publish with RETAIN is kept with its QoS for subscribers yet to come.
3.3.1-6 S A new subscription brings the last retained message of each topic it matches.
3.3.1-7 S A retained publish at QoS 0 removes what was kept before and is kept in its place.
3.3.1-8 S What a new subscription brings from the store has RETAIN set.
3.3.1-9 S What reaches an existing subscription has RETAIN clear, however it was published.
3.3.1-10 S An empty retained publish is delivered as usual and removes what was kept for its topic.
3.3.1-11 S The empty message itself is not kept.
3.3.1-12 S A publish without RETAIN neither adds to the store, nor replaces, nor removes.
3.3.2-1 B PUBLISH starts with the topic name, as UTF-8 text.
3.3.2-2 B A topic name in PUBLISH has no wildcards.
3.3.2-3 S The topic of a delivery is matched by a filter of the subscriber.
3.3.4-1 B PUBLISH gets no answer at QoS 0, PUBACK at QoS 1, PUBREC at QoS 2.
3.3.5-1 S Where filters of one client overlap, the message comes with the highest QoS granted to any of them.
3.3.5-2 S A publish that access rules forbid is either acknowledged as usual or answered by closing.

3.6.1-1 B The low bits of PUBREL are 0010, and other values end the connection.

3.8.1-1 C The low bits of SUBSCRIBE are 0010, and other values end the connection.
3.8.3-1 C The filters of SUBSCRIBE are UTF-8 text.
3.8.3-2 S A server that does not do wildcards refuses filters that have them.
3.8.3-3 C SUBSCRIBE has one filter or more.
3.8.3-4 S A filter with QoS 3 or reserved bits set ends the connection.
3.8.4-1 S SUBSCRIBE is answered with SUBACK.
3.8.4-2 S SUBACK has the packet identifier of the SUBSCRIBE.
3.8.4-3 S A filter subscribed again replaces the old one, brings the retained messages again and loses no live ones.
3.8.4-4 S Several filters in one packet act like packets of one filter each, with one SUBACK in all.
3.8.4-5 S SUBACK has one code for each filter: the QoS granted, or failure.
3.8.4-6 S A delivery has the lower of the published QoS and the granted QoS.

3.9.3-1 S The codes in SUBACK stand in the order of the filters.
3.9.3-2 S A SUBACK code is 0, 1, 2 or 128.

3.10.1-1 C The low bits of UNSUBSCRIBE are 0010, and other values end the connection.
3.10.3-1 C The filters of UNSUBSCRIBE are UTF-8 text.
3.10.3-2 C UNSUBSCRIBE has one filter or more.
3.10.4-1 S A filter ends the subscription whose text is the same, character by character, and no other.
3.10.4-2 S An ended subscription gets no further messages.
3.10.4-3 S What was already on its way above QoS 0 is completed.
3.10.4-4 S UNSUBSCRIBE is answered with UNSUBACK of the same identifier.
3.10.4-5 S That answer comes even if there was nothing to end.
3.10.4-6 S Several filters in one packet act like packets of one filter each, with one UNSUBACK in all.

3.12.4-1 S PINGREQ is answered with PINGRESP.

3.14.1-1 S DISCONNECT with reserved bits set ends the connection as an error.
3.14.4-2 C After DISCONNECT the client sends nothing.
3.14.4-3 S DISCONNECT throws the will away.

4.1.0-1 B Session state is kept for as long as the session lasts.
4.1.0-2 B A session lasts at least while its client is connected.

4.3.1-1 B A QoS 0 message is sent once, with QoS 0 and DUP 0.
4.3.2-1 B A QoS 1 message has a fresh identifier and DUP 0, and waits for its PUBACK.
4.3.2-2 B A QoS 1 message is answered with PUBACK, and its identifier then stands for a new message.
4.3.3-1 B A QoS 2 message has a fresh identifier, PUBREC is answered with PUBREL, and PUBLISH is not sent after that.
4.3.3-2 B A QoS 2 message is answered with PUBREC and passed on once; PUBREL is answered with PUBCOMP.

4.4.0-1 B A resumed session sends unanswered PUBLISH and PUBREL again, with their identifiers.

4.5.0-1 S An accepted message reaches the session of each client with a matching subscription.

4.6.0-1 B What is sent again keeps the order of the first time.
4.6.0-2 B PUBACKs have the order of the PUBLISH packets they answer.
4.6.0-3 B PUBRECs have the order of the PUBLISH packets they answer.
4.6.0-4 B PUBRELs have the order of the PUBREC packets they answer.
4.6.0-5 S Every topic keeps its order unless configured otherwise.
4.6.0-6 S In such a topic, messages of one client at one QoS are delivered in the order they came.

4.7.1-1 C Wildcards belong in filters and never in topic names.
4.7.1-2 C The # wildcard is the last level and has that level to itself.
4.7.1-3 C The + wildcard has its level to itself.
4.7.2-1 S A filter that begins with a wildcard does not match a topic that begins with $.
4.7.3-1 B Names and filters are not empty.
4.7.3-2 B Names and filters have no U+0000.
4.7.3-3 B Names and filters fit in 65535 bytes.
4.7.3-4 S Text is compared as it is, with no normalisation.

4.8.0-1 B A breach of the protocol ends the connection it came on.
4.8.0-2 B A passing fault while a packet is handled ends the connection it came on.

6.0.0-1 B Over WebSocket only binary frames carry MQTT, and a text frame ends the connection.
6.0.0-2 B A WebSocket frame may hold part of a packet, or several.
6.0.0-4 S The server chooses the subprotocol mqtt.

7.0.0-1 S A server that also connects to others follows the rules of both ends.
7.0.0-2 B Nothing outside the standard is needed to work with the other end.
7.1.1-1 S The server offers an ordered and lossless stream of bytes.
"""
