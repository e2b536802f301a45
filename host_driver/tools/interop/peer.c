/* The guest's end of a case, with librdmacm. It connects or listens, performs the operations that its arguments name,
 * and prints a line for each result.
 *
 *     peer listen PORT [WORD...]
 *     peer connect ADDRESS PORT [WORD...]
 *
 * Words for the connection: ird=N ord=N private=N (octets 0, 1, 2 and so on) memory=N (octets offered) reject silent
 * (no offers are exchanged). Words for the operations that follow, in order:
 *
 *     send=N       a Send of N octets
 *     receive      wait for a Send
 *     write=N      an RDMA Write of N octets to the start of the peer's memory
 *     read=N       an RDMA Read of N octets from there
 *     badwrite badread    with an STag that the peer has not advertised
 *     farwrite farread    past the end of the peer's memory
 *     check        print the CRC-32 of the memory
 *     hold         wait until the peer ends the connection
 *
 * An offer is a Send with TO (64), STag (32) and length (32) in network order; the initiator's comes first. The memory
 * holds octet n as n * 7 mod 256.
 */
#include <endian.h>
#include <errno.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BUFFERS = 24, ROOM = 70000, OFFER = 16 };

static struct rdma_cm_id *id;
static struct ibv_mr *memory_mr, *work_mr, *buffer_mr;
static uint8_t *memory, *work, *buffers;
static uint32_t memory_octets = 1 << 16, peer_stag, peer_octets, work_octets = 4 << 20;
static uint64_t peer_to;
static int over; /* the connection has ended: rdma_disconnect would wait for an event that has already arrived */

static void fail(const char *what)
{
	printf("failed: %s: %s\n", what, strerror(errno));
	exit(1);
}

static uint32_t crc32_of(const uint8_t *octets, uint32_t count)
{
	static uint32_t table[256];
	uint32_t crc = ~0u;
	if (!table[1])
		for (uint32_t n = 0; n < 256; n++) {
			table[n] = n;
			for (int bit = 0; bit < 8; bit++)
				table[n] = table[n] >> 1 ^ (table[n] & 1 ? 0xedb88320 : 0);
		}
	while (count--)
		crc = crc >> 8 ^ table[(crc ^ *octets++) & 0xff];
	return ~crc;
}

static void print_parameters(const char *what, struct rdma_conn_param *param)
{
	printf("%s: ird %u ord %u private ", what, param->responder_resources, param->initiator_depth);
	for (int n = 0; n < param->private_data_len; n++)
		printf("%02x", ((const uint8_t *)param->private_data)[n]);
	printf("\n");
}

static void post_receive(int number)
{
	if (rdma_post_recv(id, (void *)(uintptr_t)number, buffers + number * ROOM, ROOM, buffer_mr))
		fail("rdma_post_recv");
}

static void prepare(void)
{
	memory = malloc(memory_octets);
	work = calloc(1, work_octets);
	buffers = calloc(BUFFERS, ROOM);
	for (uint32_t n = 0; n < memory_octets; n++)
		memory[n] = n * 7;
	memory_mr = ibv_reg_mr(id->pd, memory, memory_octets,
			       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE);
	work_mr = ibv_reg_mr(id->pd, work, work_octets, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	buffer_mr = ibv_reg_mr(id->pd, buffers, BUFFERS * ROOM, IBV_ACCESS_LOCAL_WRITE);
	if (!memory_mr || !work_mr || !buffer_mr)
		fail("ibv_reg_mr");
	for (int n = 0; n < BUFFERS; n++)
		post_receive(n);
}

/* Waits for the completion of the last posted operation, and returns whether it succeeded. */
static int completed(const char *what, uint32_t octets)
{
	struct ibv_wc wc;
	int count = rdma_get_send_comp(id, &wc);
	if (count != 1)
		fail("rdma_get_send_comp");
	printf("%s %u: %s\n", what, octets, ibv_wc_status_str(wc.status));
	return wc.status == IBV_WC_SUCCESS;
}

static int receive(uint8_t **octets)
{
	struct ibv_wc wc;
	if (rdma_get_recv_comp(id, &wc) != 1)
		fail("rdma_get_recv_comp");
	if (wc.status != IBV_WC_SUCCESS) {
		printf("receive: %s\n", ibv_wc_status_str(wc.status));
		return -1;
	}
	*octets = buffers + wc.wr_id * ROOM;
	return wc.byte_len;
}

static int send_octets(uint32_t octets)
{
	if (rdma_post_send(id, NULL, work, octets, work_mr, IBV_SEND_SIGNALED))
		fail("rdma_post_send");
	return completed("send", octets);
}

static void offer(void)
{
	uint64_t to = htobe64((uintptr_t)memory);
	uint32_t stag = htobe32(memory_mr->rkey), octets = htobe32(memory_octets);
	memcpy(work, &to, 8);
	memcpy(work + 8, &stag, 4);
	memcpy(work + 12, &octets, 4);
	send_octets(OFFER);
	for (uint32_t n = 0; n < work_octets; n++)
		work[n] = n * 5;
}

static void take_offer(void)
{
	uint8_t *octets;
	int count = receive(&octets);
	if (count != OFFER) {
		printf("failed: an offer of %d octets\n", count);
		exit(1);
	}
	memcpy(&peer_to, octets, 8);
	memcpy(&peer_stag, octets + 8, 4);
	memcpy(&peer_octets, octets + 12, 4);
	peer_to = be64toh(peer_to);
	peer_stag = be32toh(peer_stag);
	peer_octets = be32toh(peer_octets);
	printf("offered: %u octets\n", peer_octets);
}

static int transfer(const char *what, int read, uint32_t octets, uint64_t to, uint32_t stag)
{
	int status = read ? rdma_post_read(id, NULL, work, octets, work_mr, IBV_SEND_SIGNALED, to, stag)
			  : rdma_post_write(id, NULL, work, octets, work_mr, IBV_SEND_SIGNALED, to, stag);
	if (status) {
		printf("%s %u: cannot be posted: %s\n", what, octets, strerror(errno));
		return 0;
	}
	int good = completed(what, octets);
	if (good && read)
		printf("crc %08x\n", crc32_of(work, octets));
	return good;
}

/* Prints the event of rdma_cm that ends the connection. */
static void hold(void)
{
	struct rdma_cm_event *event;
	if (rdma_get_cm_event(id->channel, &event)) {
		printf("ended: %s\n", strerror(errno));
		return;
	}
	printf("ended: %s status %d\n", rdma_event_str(event->event), event->status);
	rdma_ack_cm_event(event);
	over = 1;
}

static int number(const char *word, const char *name, uint32_t *value)
{
	size_t length = strlen(name);
	if (strncmp(word, name, length) || word[length] != '=')
		return 0;
	*value = strtoul(word + length + 1, NULL, 0);
	return 1;
}

static int act(const char *word)
{
	uint32_t octets;
	uint8_t *received;
	if (number(word, "send", &octets))
		return send_octets(octets);
	if (number(word, "write", &octets))
		return transfer("write", 0, octets, peer_to, peer_stag);
	if (number(word, "read", &octets))
		return transfer("read", 1, octets, peer_to, peer_stag);
	if (!strcmp(word, "badwrite"))
		return transfer(word, 0, 64, peer_to, peer_stag ^ 0x5a00);
	if (!strcmp(word, "badread"))
		return transfer(word, 1, 64, peer_to, peer_stag ^ 0x5a00);
	if (!strcmp(word, "farwrite"))
		return transfer(word, 0, 64, peer_to + peer_octets - 32, peer_stag);
	if (!strcmp(word, "farread"))
		return transfer(word, 1, 64, peer_to + peer_octets - 32, peer_stag);
	if (!strcmp(word, "check"))
		printf("memory crc %08x\n", crc32_of(memory, memory_octets));
	if (!strcmp(word, "hold"))
		hold();
	if (!strcmp(word, "receive")) {
		int count = receive(&received);
		if (count >= 0)
			printf("received %d crc %08x\n", count, crc32_of(received, count));
	}
	return 1;
}

int main(int count, char **words)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	int listens = count > 2 && !strcmp(words[1], "listen"), silent = 0, reject = 0;
	const char *address = listens ? NULL : words[2], *port = words[listens ? 2 : 3];
	uint32_t ird = 1, ord = 1, private_octets = 0, first = listens ? 3 : 4;
	uint8_t private_data[256];
	for (int n = 0; n < 256; n++)
		private_data[n] = n;
	for (int n = first; n < count; n++) {
		number(words[n], "ird", &ird);
		number(words[n], "ord", &ord);
		number(words[n], "private", &private_octets);
		number(words[n], "memory", &memory_octets);
		silent |= !strcmp(words[n], "silent");
		reject |= !strcmp(words[n], "reject");
	}
	struct rdma_addrinfo hints = { .ai_port_space = RDMA_PS_TCP, .ai_flags = listens ? RAI_PASSIVE : 0 }, *found;
	struct ibv_qp_init_attr attr = {
		.cap = { .max_send_wr = 32, .max_recv_wr = 32, .max_send_sge = 1, .max_recv_sge = 1 },
		.sq_sig_all = 0,
	};
	struct rdma_conn_param param = {
		.private_data = private_data, .private_data_len = private_octets,
		.responder_resources = ird, .initiator_depth = ord, .retry_count = 7,
	};
	if (rdma_getaddrinfo(address, port, &hints, &found))
		fail("rdma_getaddrinfo");
	struct rdma_cm_id *made;
	if (rdma_create_ep(&made, found, NULL, &attr))
		fail("rdma_create_ep");
	if (listens) {
		if (rdma_listen(made, 4))
			fail("rdma_listen");
		printf("listening\n");
		if (rdma_get_request(made, &id))
			fail("rdma_get_request");
		print_parameters("request", &id->event->param.conn);
		if (reject) {
			if (rdma_reject(id, private_data, private_octets))
				fail("rdma_reject");
			printf("rejected\n");
			return 0;
		}
		prepare();
		if (rdma_accept(id, &param))
			fail("rdma_accept");
		printf("established\n");
	} else {
		id = made;
		prepare();
		if (rdma_connect(id, &param)) {
			int why = errno;
			if (id->event) {
				printf("event %s status %d\n", rdma_event_str(id->event->event), id->event->status);
				print_parameters("reply", &id->event->param.conn);
			}
			errno = why;
			fail("rdma_connect");
		}
		print_parameters("established", &id->event->param.conn);
	}
	if (!silent && listens) {
		take_offer();
		offer();
	} else if (!silent) {
		offer();
		take_offer();
	}
	for (int n = first; n < count && !over; n++)
		over |= !act(words[n]);
	if (!over)
		rdma_disconnect(id);
	printf("done\n");
	return 0;
}
