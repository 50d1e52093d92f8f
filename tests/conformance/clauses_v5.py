"""MQTT 5.0: the clauses a server meets, one to a line: id, who is bound (S server, B both, C client), what it asks.

C clauses bind the client; they are here because a server sees the breach and has to answer it.
"""

TABLE = """
1.5.4-1 B Text is well-formed UTF-8 with no surrogates.
1.5.4-2 B Text holds no U+0000.
1.5.4-3 B A byte order mark inside text is the character U+FEFF and is passed on like any other.
1.5.5-1 B A variable byte integer is written in as few bytes as possible.
1.5.7-1 B Name and value of a string pair are both UTF-8 text.

2.1.3-1 B The low four bits of the first byte are as the table of packet types prescribes.
2.2.1-2 B At QoS 0 there is no packet identifier in PUBLISH.
2.2.1-3 C A client's SUBSCRIBE, UNSUBSCRIBE and PUBLISH above QoS 0 have an identifier that is not 0 and not in use.
2.2.1-4 S What the server publishes above QoS 0 has an identifier that is not 0 and not in use.
2.2.1-5 B PUBACK, PUBREC, PUBREL and PUBCOMP name the identifier of the PUBLISH they belong to.
2.2.1-6 S SUBACK and UNSUBACK name the identifier of the request they answer.
2.2.2-1 B A packet with no properties says so with a length of 0.

3.1.0-1 C A client begins with CONNECT.
3.1.0-2 S A client that sends CONNECT twice is cut off for a protocol error.
3.1.2-1 S A protocol name that is not MQTT may be told so with 0x84, and the connection ends.
3.1.2-2 S A version that the server does not want may be told so with 0x84, and the connection ends.
3.1.2-3 S The lowest connect flag is checked to be 0.
3.1.2-4 B Clean Start throws an existing session away and begins a new one.
3.1.2-5 S Without Clean Start an existing session goes on.
3.1.2-6 S Without Clean Start and with no session, a new one begins.
3.1.2-7 S A will is kept with the session.
3.1.2-8 S The will goes out once the connection has ended and its delay or the session has run out, unless called off.
3.1.2-9 C When the will flag is set, will properties, topic and payload follow.
3.1.2-10 S A will that was published or called off by a normal DISCONNECT is gone.
3.1.2-11 C Will QoS is 0 when the will flag is not set.
3.1.2-12 C Will QoS is never 3.
3.1.2-13 C Will Retain is 0 when the will flag is not set.
3.1.2-14 S A will without Will Retain goes out as an ordinary message.
3.1.2-15 S A will with Will Retain goes out as a retained message.
3.1.2-16 C Without the user name flag there is no user name.
3.1.2-17 C With the user name flag there is a user name.
3.1.2-18 C Without the password flag there is no password.
3.1.2-19 C With the password flag there is a password.
3.1.2-22 S A client that is silent for one and a half times its keep alive is cut off as if the network had failed.
3.1.2-23 B With a Session Expiry Interval above 0 the session outlives the connection.
3.1.2-24 S No packet to a client is larger than the Maximum Packet Size it named.
3.1.2-25 S A message that would be larger is dropped for that client and counts as delivered.
3.1.2-26 S An alias to a client is never above the Topic Alias Maximum it named.
3.1.2-27 S A client that named no Topic Alias Maximum gets no aliases.
3.1.2-28 S A client that did not ask for Response Information gets none.
3.1.2-29 S Without problem information, reason strings and user properties come in PUBLISH, CONNACK, DISCONNECT only.
3.1.2-30 C A client that named an authentication method sends AUTH or DISCONNECT and nothing else before CONNACK.
3.1.3-1 C The payload has client id, will properties, will topic, will payload, user name, password, in this order.
3.1.3-2 B The client id tells which session a client means.
3.1.3-3 C The client id is always there and comes first.
3.1.3-4 C The client id is UTF-8 text.
3.1.3-5 S Every client id of 1 to 23 letters and digits is accepted.
3.1.3-6 S A server that takes an empty client id gives that client one of its own, not shared with another.
3.1.3-7 S The client goes on under the id it was given, and CONNACK names it.
3.1.3-8 S A client id that the server turns down may be told so with 0x85, and the connection ends.
3.1.3-9 S A client that is back before its will delay has passed calls the will off.
3.1.3-10 S User properties of a will keep their order.
3.1.3-11 C The will topic is UTF-8 text.
3.1.3-12 C The user name is UTF-8 text.
3.1.4-1 S A CONNECT that breaks the format ends the connection.
3.1.4-2 S A CONNECT that fails other checks, such as authentication, ends the connection.
3.1.4-3 S A second connection with the same client id ends the first, with DISCONNECT 0x8E.
3.1.4-4 S Clean Start is carried out as its flag says.
3.1.4-5 S A good CONNECT is answered with CONNACK 0x00.
3.1.4-6 S Once CONNECT is refused, nothing that came after it has any effect, AUTH excepted.

3.2.0-1 S CONNACK 0x00 comes before any other packet of the server, AUTH excepted.
3.2.0-2 S There is one CONNACK in a connection.
3.2.2-1 S All flags of CONNACK but the lowest are 0.
3.2.2-2 S With Clean Start CONNACK says that no session was there.
3.2.2-3 S Without Clean Start CONNACK says whether a session was there.
3.2.2-6 S A CONNACK with another code than 0 never says that a session was there.
3.2.2-7 S After a CONNACK of 0x80 or more the server closes the connection.
3.2.2-8 S The code in CONNACK is one of those listed for it.
3.2.2-9 S A server without QoS 1 or 2 says so with Maximum QoS.
3.2.2-10 S Such a server still takes subscriptions at every QoS.
3.2.2-11 C A client that was told a Maximum QoS publishes nothing above it.
3.2.2-12 S A will with a QoS that the server does not do is refused with 0x9B.
3.2.2-13 S A retained will is refused with 0x9A by a server that retains nothing.
3.2.2-14 C A client that was told Retain Available 0 publishes nothing with RETAIN.
3.2.2-15 C A client sends no packet larger than the server's Maximum Packet Size.
3.2.2-16 S An empty client id is answered with an Assigned Client Identifier that nobody else has.
3.2.2-17 C A client's aliases are not above the server's Topic Alias Maximum.
3.2.2-18 C A client uses no aliases towards a server that named no maximum.
3.2.2-19 S CONNACK leaves out its reason string where the packet would be too large for the client.
3.2.2-20 S CONNACK leaves out user properties where the packet would be too large for the client.
3.2.2-22 S Without Server Keep Alive in CONNACK the client's own keep alive counts.

3.3.1-1 B A PUBLISH that is sent again has DUP set.
3.3.1-2 B DUP is never set at QoS 0.
3.3.1-3 S DUP towards a subscriber tells about this delivery and is not copied from the publisher.
3.3.1-4 B A PUBLISH with QoS 3 is malformed.
3.3.1-5 S A publish with RETAIN takes the place of what was kept for its topic.
3.3.1-6 S An empty retained publish is delivered as usual and removes what was kept for its topic.
3.3.1-7 S The empty message itself is not kept.
3.3.1-8 S A publish without RETAIN neither adds to the store, nor replaces, nor removes.
3.3.1-9 S Retain Handling 0: a subscription brings the retained messages it matches.
3.3.1-10 S Retain Handling 1: only a subscription that was not there yet brings them.
3.3.1-11 S Retain Handling 2: a subscription brings none.
3.3.1-12 S Without Retain As Published, live messages have RETAIN clear.
3.3.1-13 S With Retain As Published, live messages have RETAIN as the publisher set it.
3.3.2-1 B PUBLISH starts with the topic name, as UTF-8 text.
3.3.2-2 B A topic name in PUBLISH has no wildcards.
3.3.2-3 S The topic of a delivery is matched by a filter of the subscriber.
3.3.2-4 S Payload Format Indicator reaches all subscribers as it was.
3.3.2-5 S A copy whose Message Expiry Interval ran out before its delivery began is thrown away.
3.3.2-6 S The interval of a delivery is what the publisher gave less the time the message waited.
3.3.2-7 B Aliases mean nothing on another connection.
3.3.2-8 B Topic Alias 0 does not exist.
3.3.2-9 C A client's alias is above 0 and not above what the server named.
3.3.2-11 S A server's alias is above 0 and not above what the client named.
3.3.2-12 S Every alias from 1 to the announced maximum is accepted.
3.3.2-13 B Response Topic is UTF-8 text.
3.3.2-14 B Response Topic has no wildcards.
3.3.2-15 S Response Topic reaches all subscribers as it was.
3.3.2-16 S Correlation Data reaches all subscribers as it was.
3.3.2-17 S User properties reach all subscribers as they were.
3.3.2-18 S User properties keep their order.
3.3.2-19 B Content Type is UTF-8 text.
3.3.2-20 S Content Type reaches all subscribers as it was.
3.3.4-1 B PUBLISH gets no answer at QoS 0, PUBACK at QoS 1, PUBREC at QoS 2.
3.3.4-2 S Where filters of one client overlap, the message comes with the highest QoS granted to any of them.
3.3.4-3 S A delivery carries the identifiers of the subscriptions that match it.
3.3.4-4 S One copy for several subscriptions carries all of their identifiers.
3.3.4-5 S With one copy per subscription, each carries the identifier of its own.
3.3.4-6 C A client's PUBLISH has no Subscription Identifier.
3.3.4-7 C A client has no more unanswered publishes than the server's Receive Maximum.
3.3.4-9 S A server has no more unanswered publishes than the client's Receive Maximum.
3.3.4-10 S A full window holds back PUBLISH and no other packet.

3.4.2-1 B The code in PUBACK is one of those listed for it.
3.4.2-2 B PUBACK leaves out its reason string where the packet would be too large.
3.4.2-3 B PUBACK leaves out user properties where the packet would be too large.

3.5.2-1 B The code in PUBREC is one of those listed for it.
3.5.2-2 B PUBREC leaves out its reason string where the packet would be too large.
3.5.2-3 B PUBREC leaves out user properties where the packet would be too large.

3.6.1-1 B The low bits of PUBREL are 0010, and other values end the connection.
3.6.2-1 B The code in PUBREL is one of those listed for it.
3.6.2-2 B PUBREL leaves out its reason string where the packet would be too large.
3.6.2-3 B PUBREL leaves out user properties where the packet would be too large.

3.7.2-1 B The code in PUBCOMP is one of those listed for it.
3.7.2-2 B PUBCOMP leaves out its reason string where the packet would be too large.
3.7.2-3 B PUBCOMP leaves out user properties where the packet would be too large.

3.8.1-1 C The low bits of SUBSCRIBE are 0010, and other values end the connection.
3.8.3-1 C The filters of SUBSCRIBE are UTF-8 text.
3.8.3-2 C SUBSCRIBE has one filter or more.
3.8.3-3 S With No Local a message does not go back to the client id that published it.
3.8.3-4 C No Local on a shared subscription is a protocol error.
3.8.3-5 S Reserved option bits make SUBSCRIBE malformed.
3.8.4-1 S SUBSCRIBE is answered with SUBACK.
3.8.4-2 S SUBACK has the packet identifier of the SUBSCRIBE.
3.8.4-3 S The same filter, not shared, replaces the subscription.
3.8.4-4 S With Retain Handling 0 a replaced subscription brings the retained messages again and loses no live ones.
3.8.4-5 S Several filters in one packet act like packets of one filter each, with one SUBACK in all.
3.8.4-6 S SUBACK has one code for each filter.
3.8.4-7 S That code is the QoS granted or tells that the subscription failed.
3.8.4-8 S A delivery has the lower of the published QoS and the granted QoS.

3.9.2-1 S SUBACK leaves out its reason string where the packet would be too large.
3.9.2-2 S SUBACK leaves out user properties where the packet would be too large.
3.9.3-1 S The codes in SUBACK stand in the order of the filters.
3.9.3-2 S Each code in SUBACK is one of those listed for it.

3.10.1-1 C The low bits of UNSUBSCRIBE are 0010, and other values end the connection.
3.10.3-1 C The filters of UNSUBSCRIBE are UTF-8 text.
3.10.3-2 C UNSUBSCRIBE has one filter or more.
3.10.4-1 S A filter ends the subscription whose text is the same, character by character, and no other.
3.10.4-2 S An ended subscription gets no further messages.
3.10.4-3 S What was already on its way above QoS 0 is completed.
3.10.4-4 S UNSUBSCRIBE is answered with UNSUBACK.
3.10.4-5 S UNSUBACK has the identifier of the request, even if there was nothing to end.
3.10.4-6 S Several filters in one packet act like packets of one filter each, with one UNSUBACK in all.

3.11.2-1 S UNSUBACK leaves out its reason string where the packet would be too large.
3.11.2-2 S UNSUBACK leaves out user properties where the packet would be too large.
3.11.3-1 S The codes in UNSUBACK stand in the order of the filters.
3.11.3-2 S Each code in UNSUBACK is one of those listed for it.

3.12.4-1 S PINGREQ is answered with PINGRESP.

3.14.0-1 S The server sends no DISCONNECT before it has accepted the client.
3.14.1-1 B DISCONNECT with reserved bits set is malformed and answered with 0x81.
3.14.2-1 B The code in DISCONNECT is one of those listed for it.
3.14.2-2 S The server's DISCONNECT has no Session Expiry Interval.
3.14.2-3 B DISCONNECT leaves out its reason string where the packet would be too large.
3.14.2-4 B DISCONNECT leaves out user properties where the packet would be too large.
3.14.4-1 B Nothing is sent after DISCONNECT.
3.14.4-2 B Who has sent DISCONNECT closes the connection.
3.14.4-3 S A normal DISCONNECT throws the will away.

3.15.1-1 B The low bits of AUTH are 0, and other values end the connection.
3.15.2-1 B The code in AUTH is one of those listed for it.
3.15.2-2 B AUTH leaves out its reason string where the packet would be too large.
3.15.2-3 B AUTH leaves out user properties where the packet would be too large.

4.1.0-1 B Session state is kept while the connection is open.
4.1.0-2 S Session state is thrown away once the connection is closed and its expiry interval has passed.

4.2.0-1 B Each end offers an ordered and lossless stream of bytes.

4.3.1-1 B A QoS 0 message is sent once, with QoS 0 and DUP 0.
4.3.2-1 B Each new QoS 1 message has an identifier that is not in use.
4.3.2-2 B It is sent with QoS 1 and DUP 0.
4.3.2-3 B It waits for its PUBACK.
4.3.2-4 B A QoS 1 message is answered with PUBACK of its identifier.
4.3.2-5 B After that PUBACK the identifier stands for a new message, whatever DUP says.
4.3.3-1 B Each new QoS 2 message has an identifier that is not in use.
4.3.3-2 B It is sent with QoS 2 and DUP 0.
4.3.3-3 B It waits for its PUBREC.
4.3.3-4 B A PUBREC below 0x80 is answered with PUBREL of its identifier.
4.3.3-5 B PUBREL waits for its PUBCOMP.
4.3.3-6 B After PUBREL the PUBLISH is not sent again.
4.3.3-7 B A message that has been sent does not expire any more.
4.3.3-8 B A QoS 2 message is answered with PUBREC of its identifier.
4.3.3-9 B After a PUBREC of 0x80 or more the identifier stands for a new message.
4.3.3-10 B Until PUBREL comes, a repeated PUBLISH is answered with PUBREC and passed on to nobody again.
4.3.3-11 B PUBREL is answered with PUBCOMP of its identifier.
4.3.3-12 B After PUBCOMP the identifier stands for a new message.
4.3.3-13 B The QoS 2 handshake is completed even if the message has expired.

4.4.0-1 B A resumed session repeats unanswered PUBLISH and PUBREL with their identifiers; nothing is repeated otherwise.
4.4.0-2 B An acknowledgement of 0x80 or more ends the message like any other.

4.5.0-1 S An accepted message reaches the session of each client with a matching subscription.

4.6.0-5 S In an ordered topic, messages of one client at one QoS are delivered in the order they came.
4.6.0-6 S Every topic is ordered for subscriptions that are not shared, unless configured otherwise.

4.7.0-1 C Wildcards belong in filters and never in topic names.
4.7.1-1 C The # wildcard is the last level and has that level to itself.
4.7.1-2 C The + wildcard has its level to itself.
4.7.2-1 S A filter that begins with a wildcard does not match a topic that begins with $.
4.7.3-1 B Names and filters are not empty.
4.7.3-2 B Names and filters have no U+0000.
4.7.3-3 B Names and filters fit in 65535 bytes.
4.7.3-4 S Text is compared as it is, with no normalisation.

4.8.2-1 C A shared filter begins with $share/ and a share name that is not empty.
4.8.2-2 C A share name has no / or wildcard in it; a / and a filter follow.
4.8.2-3 S Each member gets messages with its own granted QoS at most.
4.8.2-4 S A QoS 2 delivery begun with a member is completed with that member when it is back.
4.8.2-5 S If that member's session ends first, nobody else gets the message.
4.8.2-6 S If a member refuses a message with 0x80 or more, nobody else gets it.

4.9.0-1 B The send quota starts above 0 and not above the other end's Receive Maximum.
4.9.0-2 B With no quota left, nothing above QoS 0 is published.
4.9.0-3 B With no quota left, all other packets are handled as usual.

4.12.0-1 S An unknown authentication method may be told so with 0x8C or 0x87, and the connection ends.
4.12.0-2 S A server that needs more sends AUTH 0x18.
4.12.0-3 C The client answers it with AUTH 0x18.
4.12.0-4 S Failed authentication may be told with a CONNACK of 0x80 or more, and the connection ends.
4.12.0-5 B CONNECT, AUTH and CONNACK of one exchange name the same method.
4.12.0-6 S To a client that named no method the server sends no AUTH, and no method in CONNACK.
4.12.0-7 C A client that named no method sends no AUTH.
4.12.1-1 C A client authenticates again with AUTH 0x19 and the method of its CONNECT.
4.12.1-2 B If that fails, the connection ends.

4.13.1-1 S A malformed packet or protocol error that has a reason code ends the connection.
4.13.2-1 B Wherever CONNACK or DISCONNECT of 0x80 or more is called for, the connection ends, sent or not.

6.0.0-1 B Over WebSocket only binary frames carry MQTT, and a text frame ends the connection.
6.0.0-2 B A WebSocket frame may hold part of a packet, or several.
6.0.0-4 S The server chooses the subprotocol mqtt.
"""
