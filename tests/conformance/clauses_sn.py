"""MQTT-SN: what a server meets, one to a line: id, who is bound (S server, B both, C client), what it asks.

1.2 numbers no statements, so its labels are our own. The ids of 2.0 are those of the draft of August 2026; earlier
drafts use the same numbers for other rules. P stands for statements about the Protection Encapsulation.
"""

TABLE_12 = """
SN12-01 B A length of one byte and a length of three bytes are both understood.
SN12-02 S Protocol id 1 is accepted, any other is answered with return code 3.
SN12-03 S A client that announces a will is asked for its topic, then its message, and only then accepted.
SN12-04 S CleanSession and Will decide in four ways which subscriptions and which will remain.
SN12-05 S An empty will topic deletes the will, and each update is answered.
SN12-06 S A topic that is registered keeps its id for this client, and the answer names the message id.
SN12-07 S SUBACK tells the granted QoS, and no topic id for wildcards and short names.
SN12-08 S A publish to an id that means nothing is answered with return code 2.
SN12-09 B QoS 1 and 2 run their exchanges, and a QoS 2 message that is resent arrives once.
SN12-10 S Without a connection only predefined and short topics can be published to, at QoS -1.
SN12-11 S A topic that a wildcard matched is registered before its first message; short and predefined ones are not.
SN12-12 S What comes for a sleeping client waits, follows its PINGREQ, and ends with PINGRESP.
SN12-13 S A client that is lost sends its will; one that says goodbye does not.
SN12-14 S A goodbye is answered with one.
SN12-15 S A message from an address that is not connected is answered with DISCONNECT.
SN12-16 S Retained messages are set, replaced, deleted and delivered as in MQTT 3.1.1.
SN12-17 S Every new SUBSCRIBE, the same filter included, brings the retained messages.
SN12-18 S Who searches for a gateway is told its id; advertisements go out at their interval.
SN12-19 S A message in a forwarder's envelope is answered in the same envelope.
SN12-20 S The version of a peer is told from type, size and version byte.
"""

TABLE_2 = """
1.8.4-1 B Text that is not well-formed UTF-8 makes the packet malformed.
1.8.4-2 B So does text with U+0000 in it.
1.8.4-3 B A byte order mark is a character like others and stays.
2.1.2-1 B Short and long form of the length are both understood.
2.2-1 C A request of a client names a packet id that is not 0.
2.2-2 B At QoS 0 there is no packet id.
2.2-3 S What the server publishes above QoS 0 has a packet id that is neither 0 nor in use.
2.2-4 B An answer names the packet id of what it answers.
3.1.2-1 S The reserved flag of CONNECT is checked.
3.1.2.1-1 S With Clean Start the old session is gone and a new one begins.
3.1.2.1-2 S Without it a stored session goes on.
3.1.2.1-3 S Without it, and with none stored, a session begins.
3.1.2.2-1 C With the will flag, will flags, topic and payload are there.
3.1.2.2-2 S The will is kept with the session.
3.1.2.2-3 S The will goes out when the virtual connection or the session ends, but for DISCONNECT 0x00.
3.1.2.2-4 S A will that went out or was called off is forgotten.
3.1.2.3-1 C With the authentication flag, method and data are there.
3.1.2.3-2 C Without it they are not.
3.1.2.4-1 C With its flag the session expiry is there.
3.1.2.4-2 C Without it, it is not.
3.1.2.5-1 C With its flag the number of awake messages is there.
3.1.2.5-2 C Without it, it is not.
3.1.2.6-1 S A Connection Encapsulation from a client that ruled it out ends its connection.
3.1.2.7-1 S Who takes no suggestions is told no keep alive.
3.1.2.7-2 S Nor a session expiry.
3.1.2.7-3 S Nor a sleep duration.
3.1.3-1 C Without a will there is no byte of will flags.
3.1.3-2 C With a will there is one.
3.1.3.3-1 S A will without Retain goes out as an ordinary message.
3.1.3.3-2 S A will with Retain goes out as a retained one.
3.1.5-1 C The version byte is 2.
3.1.5-2 S Another version may be told so with 0x84.
3.1.6-2 S After one and a half keep alives of silence the connection is gone.
3.1.6-4 C A keep alive of 0 is an error.
3.1.7-1 C A maximum packet size is 0 or at least 10.
3.1.7-2 S The client is sent nothing larger than it takes.
3.1.7-3 S What would be larger is dropped and counts as sent.
3.1.9-1 B With a session expiry above 0 the session outlives its connection.
3.1.11-1 C The topic of the will is UTF-8.
3.1.18-1 C The client id is UTF-8.
3.1.18-2 B The client id names the session.
3.1.18-3 S Client ids of 1 to 23 letters and digits are accepted.
3.1.18-4 S Longer ones may be.
3.1.19-1 S A CONNECT that is not valid makes no virtual connection.
3.1.19-2 S Nor does one that is refused for another reason.
3.1.19-3 S A second connection of a client id ends the first, with 0x8E.
3.1.19-4 S Clean Start is carried out.
3.1.19-5 S Success is answered with CONNACK 0x00.
3.1.19-7 S Until CONNACK nothing else of the client is processed.
3.2.2-1 S The upper four flags of CONNACK are 0.
3.2.2.1-1 S After Clean Start, Session Present is 0.
3.2.2.1-2 S Otherwise it says whether there was a session.
3.2.2.1-5 S With a refusal it is 0.
3.2.2.2-1 S Without its flag CONNACK has no session expiry.
3.2.2.2-2 S With it, it has one.
3.2.2.3-1 S Without its flag CONNACK has no keep alive.
3.2.2.3-2 S With it, it has one.
3.2.2.4-1 S Without its flag CONNACK has no authentication fields.
3.2.2.4-2 S With it, it has them.
3.2.4-1 S CONNACK carries only codes that are defined for it.
3.2.4-2 S A refusal leaves no virtual connection.
3.2.6-2 S When no keep alive is suggested the client's own counts.
3.2.11-1 S An assigned client id is UTF-8.
3.2.11-2 S A client that names no id is assigned one in CONNACK.
3.2.11-3 S An assigned id belongs to nobody else.
3.3.2-1 S AUTH of the server names the packet id it answers.
3.3.3-1 B AUTH carries only codes that are defined for it.
3.4-1 C REGISTER of a client has no alias.
3.4-2 S REGISTER of the server has one.
3.4.2-1 B The upper seven flags of REGISTER are 0.
3.4.2-2 B They are checked.
3.4.2.1-1 B Without its flag REGISTER has no alias.
3.4.2.1-2 B With it, it has one.
3.5.2-1 B The upper five flags of REGACK are 0.
3.5.2-2 B They are checked.
3.5.2.1-1 B REGACK is about a session alias or a predefined one.
3.5.2.2-1 B Without its flag REGACK has no alias.
3.5.2.2-2 B With it, it has one.
3.5.4-1 C REGACK of a client has no alias.
3.5.5-1 B REGACK carries only codes that are defined for it.
3.6-1 S A publish without session reaches MQTT at QoS 0.
3.6.1.2-1 B The reserved flags of PUBWOS are 0.
3.6.1.2-2 B They are checked.
3.6.1.2.1-1 B PUBWOS names a predefined alias or a topic.
3.6.1.4-1 B By name, the name is there.
3.6.1.4-2 B By alias, no name is there.
3.6.1.6-1 B PUBWOS is handled as QoS 0.
3.6.2-1 B PUBLISH needs a session.
3.6.2.2-1 B The two middle flags of PUBLISH are 0.
3.6.2.2-2 B They are checked.
3.6.2.2.1-1 B PUBLISH names a topic, a predefined alias or a session alias.
3.6.2.2.3-1 B DUP is 0 below QoS 2.
3.6.2.3-1 B At QoS 0 PUBLISH has no packet id.
3.6.2.3-2 B Above QoS 0 it has one.
3.6.2.5-1 B By name, PUBLISH holds the name.
3.6.2.5-2 B By alias, it does not.
3.6.2.7-1 B PUBLISH is answered as its QoS asks.
3.6.2.7-2 S Overlapping subscriptions deliver at the highest QoS among them.
3.6.3.3-1 B PUBACK carries only codes that are defined for it.
3.6.4.3-1 B So does PUBREC.
3.6.5.3-1 B So does PUBREL.
3.6.6.3-1 B So does PUBCOMP.
3.7.2.1-1 C SUBSCRIBE names a filter, a predefined alias or a session alias.
3.7.2.5-1 S No Local keeps a client's own messages from it.
3.7.4-1 C By alias, SUBSCRIBE holds the alias.
3.7.4-2 C By filter, it does not.
3.7.5-1 C By filter, SUBSCRIBE holds the filter.
3.7.5-2 C By alias, it does not.
3.7.6-1 S SUBSCRIBE is answered with SUBACK.
3.7.6-2 S SUBACK names its packet id.
3.7.6-3 S The same filter again replaces the subscription.
3.7.6-4 S With Retain Handling 0 retained messages come again, and no live message is lost.
3.7.6-5 S SUBACK has a reason code.
3.7.6-6 S It is the granted QoS, or why not.
3.7.6-7 S A message is delivered at the lower of published and granted QoS.
3.8.2-1 S The upper five flags of SUBACK are 0.
3.8.2.1-1 S SUBACK is about a predefined alias or a session alias.
3.8.2.1-2 S Without an alias its topic type says predefined.
3.8.2.2-1 S Without its flag SUBACK has no alias.
3.8.2.2-2 S With it, it has one.
3.8.4-1 S An alias given in SUBACK is used from then on.
3.8.4-2 S Without an alias the flag is 0.
3.8.4-3 S Who subscribed by predefined alias gets none back.
3.8.5-1 S SUBACK carries only codes that are defined for it.
3.9.2-1 C The upper six flags of UNSUBSCRIBE are 0.
3.9.2-2 S They are checked.
3.9.4-1 C By alias, UNSUBSCRIBE holds the alias.
3.9.4-2 C By filter, it does not.
3.9.5-1 C By filter, UNSUBSCRIBE holds the filter.
3.9.5-2 C By alias, it does not.
3.9.6-1 S An alias in UNSUBSCRIBE stands for its topic.
3.9.6-2 S Only the subscription with exactly that filter goes.
3.9.6-3 S Then no new messages are added for it.
3.9.6-4 S Deliveries that have begun are finished.
3.9.6-5 S UNSUBSCRIBE is answered with UNSUBACK.
3.9.6-6 S It names the packet id, whether anything was there or not.
3.10.3-1 S UNSUBACK carries only codes that are defined for it.
3.11.3-1 S PINGREQ is answered with PINGRESP.
3.11.3-2 S Without a connection it may be answered with DISCONNECT.
3.11.3-3 S Then with 0xF4.
3.11.3-4 S A sleeping client's PINGREQ wakes it: no sleep timer, but retries.
3.13.2-1 B The upper five flags of DISCONNECT are 0.
3.13.2-2 B They are checked.
3.13.2.1-1 B Without its flag there is no packet id.
3.13.2.1-2 B With it there is.
3.13.2.2-1 B Without its flag there is no session expiry.
3.13.2.2-2 B With it there is.
3.13.2.3-1 B Without its flag there is no reason code.
3.13.2.3-2 B With it there is.
3.13.4-1 B DISCONNECT carries only codes that are defined for it.
3.13.5-1 S The server's never has a session expiry.
3.13.7-1 B After it has been sent nothing follows.
3.13.7-2 B The virtual connection is gone.
3.13.7-3 S After 0x00 the will is discarded.
3.13.7-4 B After it has been received nothing is sent any more.
3.15.2-1 C The upper seven flags of SLEEPREQ are 0.
3.15.2-2 S They are checked.
3.15.2.1-1 S Predefined aliases survive every sleep.
3.15.4-1 C A sleep lasts longer than 0.
3.15.5-1 S The server never sends SLEEPREQ.
3.15.5-2 S SLEEPREQ is answered with SLEEPRESP.
3.15.5-3 S Without a connection it may be answered with 0xF4.
3.15.5-4 S The keep alive rests during sleep.
3.15.5-5 S The sleep timer runs.
3.15.5-6 S The virtual connection stays.
3.15.5-7 S A second SLEEPREQ begins the sleep anew.
3.16.2-1 S The upper seven flags of SLEEPRESP are 0.
3.16.2.1-1 S Without its flag SLEEPRESP has no duration.
3.16.2.1-2 S With it, it has one.
3.16.2.1-3 S To a client that takes no suggestions the flag is 0.
3.16.4-2 S Without a duration the client's own counts.
3.16.5-1 S SLEEPRESP carries only codes that are defined for it.
3.17-1 P Who is named as sender has protected the packet itself.
3.17-2 P A protected session has only protected packets.
3.17-3 P Another sender with the same client id has another session.
3.17-4 P Another client id of the same sender has another session.
3.17-5 P An unprotected packet with that client id has another session.
3.17.2.1-1 P One counter length is reserved.
3.17.2.1-2 P Length code 2 of the counter is four bytes.
3.17.2.1-3 P Length code 1 of the counter is two bytes.
3.17.2.1-4 P Length code 0 of the counter is none.
3.17.2.2-1 P Length code 3 of the material is twelve bytes.
3.17.2.2-2 P Length code 2 of the material is four bytes.
3.17.2.2-3 P Length code 1 of the material is two bytes.
3.17.2.2-4 P Length code 0 of the material is none.
3.17.2.3-1 P Schemes that encrypt use tag code 1.
3.17.2.3-2 P Tag code 1 is the scheme's own size.
3.17.2.3-3 P Tag codes 2 and 3 are reserved.
3.17.2.3-4 P The higher tag codes are for schemes that only authenticate.
3.17.2.3-5 P They only shorten such tags.
3.17.2.3-6 P A tag then has sixteen bits for each unit of the code.
3.17.2.3-7 P The leftmost bits are kept.
3.17.2.3-8 P No tag is longer than the scheme's own.
3.17.3-1 P The scheme is one that is defined.
3.17.3-2 P The nonce of AES-CCM is cut from a hash of the fields in front.
3.17.3-3 P So is that of AES-GCM.
3.17.3-4 P So is that of ChaCha20-Poly1305.
3.17.4-1 P A sender id has eight bytes and is unique.
3.17.7-1 P Counters do not depend on session or receiver.
3.17.8-1 P A forwarder's envelope is never inside.
3.18-1 C Who has not asked for it may not use the Connection Encapsulation.
3.18-2 S The server never sends one.
3.18-3 C Only seven kinds of packet may stand in it.
3.18-4 B What stands in it is handled as if it stood alone.
4.1.1-1 S Session state is kept while the virtual connection is there.
4.1.1-3 S It is discarded when that is gone and the expiry has passed.
4.1.2-1 S A client without an id is assigned one.
4.1.2-2 S It is new to the server.
4.2-1 P Copies of protected packets are told by their counter.
4.2.1-1 B Nearly everything needs a virtual connection.
4.3.1-1 B Publishing without a session is what PUBWOS is for.
4.3.1-2 B Such messages count as QoS 0.
4.3.2-1 B At QoS 0 a PUBLISH with QoS 0 is sent.
4.3.3-1 B At QoS 1 each new message has an unused packet id.
4.3.3-2 B It is sent with that id, QoS 1 and DUP 0.
4.3.3-3 B It is unacknowledged until PUBACK.
4.3.3-4 B At most one packet is unacknowledged.
4.3.3-5 B The receiver answers PUBACK with the same id once it has the message.
4.3.3-6 B After PUBACK the id stands for a new message.
4.3.4-1 B At QoS 2 each new message has an unused packet id.
4.3.4-2 B It is sent with that id and QoS 2.
4.3.4-3 B At first with DUP 0.
4.3.4-4 B When resent with DUP 1.
4.3.4-5 B It is unacknowledged until PUBREC.
4.3.4-6 B A good PUBREC is followed by PUBREL.
4.3.4-7 B PUBREL is unacknowledged until PUBCOMP.
4.3.4-8 B After PUBREL the message is not resent.
4.3.4-9 B The receiver answers PUBREC with the same id once it has the message.
4.3.4-10 B After a bad PUBREC the id stands for a new message.
4.3.4-11 B Until PUBREL a copy is answered and not delivered again.
4.3.4-12 B PUBREL is answered with PUBCOMP.
4.3.4-13 B After PUBCOMP the id stands for a new message.
4.4.1-1 B When a session goes on, what was unacknowledged is resent with its id.
4.4.1-2 B A bad PUBACK or PUBREC is an acknowledgement too.
4.4.1-3 B A resent QoS 2 message has DUP 1.
4.4.2-1 B CONNECT and AUTH are not resent.
4.4.2-2 B The handshake runs without resends.
4.4.2-3 S Valid requests are answered promptly.
4.4.2-5 B Who never answers loses the virtual connection.
4.4.2-6 P A resend is protected if the first copy was.
4.4.2-7 B A resend is the same packet again.
4.5-1 S A message is added for every matching subscriber.
4.6-1 S Messages of one client to one topic stay in order.
4.6-2 S By default that is so for every topic.
4.7.1.1-1 C A topic that is published to has no wildcards.
4.7.1.1.2-1 C # is last and alone in its level.
4.7.1.1.3-1 C + is alone in its level.
4.7.1.2-1 S Wildcards in the first level do not match topics with $.
4.7.1.3-1 B A topic has at least one character.
4.7.1.3-2 B It has no U+0000.
4.7.1.3-3 B It has at most 65,535 bytes.
4.7.1.3-4 S Topics are compared as they are.
4.7.2-1 B Where there is an alias, PUBLISH uses it.
4.7.2.1-1 B Predefined aliases stay the same during a session.
4.7.2.1-2 B An unknown predefined alias is an error.
4.7.2.2-1 S A session alias belongs to one session.
4.7.2.2-2 S For a filter without wildcards SUBACK has an alias.
4.7.2.2-3 S For one with wildcards it has none.
4.7.2.2-4 S A predefined topic has no session alias.
4.7.2.2-5 S Who registers a predefined topic is given its alias with 0x1A.
4.7.2.2-6 S The same number in both spaces means different topics.
4.9-1 B A second request while one is open ends the connection with 0x93.
4.9-2 B No request is sent while one is unacknowledged.
4.11.1-1 S An unknown method may be told so with 0x8C, and there is no connection.
4.11.1-2 S AUTH of the server that asks for more has 0x18.
4.11.1-3 C So has the client's answer.
4.11.1-4 S Failed authentication may be told in CONNACK.
4.11.1-5 B The method is the same in all packets of a handshake.
4.11.1-6 S Without a method in CONNECT there is none in CONNACK and no AUTH.
4.11.1-7 C Without one the client sends no AUTH.
4.11.1.1-1 C Authentication is renewed with AUTH 0x19 and the same method.
4.11.1.1-2 B When that fails the connection ends.
4.12.1-2 S A malformed packet or protocol error ends the virtual connection.
4.12.2-1 B After a bad CONNACK or DISCONNECT there is no virtual connection.
4.13-1 S RETAIN 1 stores the message in place of an older one.
4.13-2 S RETAIN 1 with nothing in it is delivered, and removes what is stored.
4.13-3 S Nothing empty is stored.
4.13-4 S RETAIN 0 leaves the store alone.
4.13-5 S Retain Handling 0 sends the retained messages.
4.13-6 S Retain Handling 1 sends them for a new subscription only.
4.13-7 S Retain Handling 2 sends none.
4.13-8 S Without Retain As Published live copies have RETAIN 0.
4.13-9 S With it they have what was published.
4.14-1 S A client without a connection sends CONNECT or PUBWOS.
4.14-2 C A sleeping client only wakes, sleeps on, connects or leaves.
4.14-3 C A client that is awake only acknowledges, connects or leaves.
4.14-4 S Any CONNECT ends the virtual connection that the client had.
4.14.2-1 S After one and a half sleep durations of silence the connection is gone.
4.14.2-2 S QoS 1 and 2 messages wait for a sleeping client.
4.14.2-3 S A client that wakes is sent as many messages as it asked for.
4.14.2-4 S Then PINGRESP tells how many remain.
4.14.2-5 S These deliveries are exchanges like others, with retries.
4.14.2-6 S Without an answer to them the client is gone.
4.14.2-7 S With nothing waiting PINGRESP comes at once.
"""

PROTECTED = "needs the Protection Encapsulation, which this server recognises and refuses with 0xF2"
NO_AUTH = "this server knows no authentication method that goes on after CONNECT, so it never sends AUTH"

UNTESTABLE_2 = {
    **{line.split(" ", 1)[0]: PROTECTED for line in TABLE_2.splitlines() if line.split(" ")[1:2] == ["P"]},
    "3.3.2-1": NO_AUTH,
    "3.3.3-1": NO_AUTH,
    "4.11.1-2": NO_AUTH,
    "4.11.1-3": NO_AUTH,
    "3.16.2.1-2": "this server grants every sleep as asked, so it never sends a duration back",
    "4.7.1.3-3": "a datagram cannot hold a topic that long",
}
