"""Both ends of a startup exchange, without sockets, clocks or devices."""

from open_rnic.host_driver.mpa.negotiation import Config, Established, Event, Negotiation, Requested, Send
from open_rnic.rtl.registers import Role, Rtr


def deliver(octets: bytes, to: Negotiation) -> list[Event]:
    """Deliver octets as a socket would, at most ``wanted`` per call; any octets after the frame would be FPDUs."""
    events: list[Event] = []
    while octets and not events:
        taken, octets = octets[: to.wanted], octets[to.wanted :]
        events = to.receive(taken)
    return events


initiator = Negotiation(Config(Role.INITIATOR))
responder = Negotiation(Config(Role.RESPONDER, rtr=(Rtr.READ,), max_ird=4, ird=4))
[request] = initiator.start(now=0.0)
responder.start(now=0.0)
assert isinstance(request, Send)
print("Request:", request.octets.hex())

[requested] = deliver(request.octets, to=responder)
assert isinstance(requested, Requested)
print("IRD", requested.frame.enhanced.ird, "ORD", requested.frame.enhanced.ord)
reply, at_responder = responder.accept()
assert isinstance(reply, Send)
print("Reply:  ", reply.octets.hex())

[at_initiator] = deliver(reply.octets, to=initiator)
assert isinstance(at_initiator, Established)
print("RTR to send:", at_initiator.negotiated.rtr_send.name, "- ORD", at_initiator.negotiated.ord)
