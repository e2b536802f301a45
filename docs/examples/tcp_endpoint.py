"""Two endpoints exchange segments; the program is the network and the clock."""

from ipaddress import IPv4Address

from open_rnic.host_driver.tcp.endpoint import Endpoint

client, server = Endpoint(IPv4Address("10.9.0.1")), Endpoint(IPv4Address("10.9.0.2"))
server.listen(7)
connection = client.open(server.address, 7, now=0)  # times are in milliseconds


def deliver(now: int) -> None:
    for source, target in ((client, server), (server, client)):
        while source.segments:
            _, segment = source.segments.popleft()
            print(f"{now} ms, {source.address}: {segment.flags.name}, {len(segment.payload)} octets")
            target.receive(source.address, segment, now)


deliver(1)
deliver(2)
client.send(connection, b"hello", 3)
deliver(3)
accepted = server.accepted[7].popleft()
print(server.take(accepted, 100, 3))
deliver(4)
client.close(connection, 5)
deliver(5)
print(connection.state.value, accepted.state.value)
print("tick is due at", client.deadline, "and", server.deadline)
