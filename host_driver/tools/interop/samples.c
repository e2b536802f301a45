/* Receives samples of a device in a ring of this process's memory, with librdmacm and libibverbs alone.
 *
 *     samples ADDRESS PORT [ring=OCTETS] [slow=MILLISECONDS] [file=NAME]
 *
 * The samples have 32 bits each, and count up from 0, as those of the pattern COUNTER: the program checks that none is
 * out of order or missing without notice. It sleeps after each doorbell if asked to, and writes the samples to a file.
 * docs/samples.md has the protocol.
 *
 *     gcc -o samples samples.c -lrdmacm -libverbs
 */
#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PLACE = 16, RECORD = 16, SAMPLE = 4 };

struct place { /* of registered memory, in network order */
	uint64_t to;
	uint32_t stag, octets;
};

static struct rdma_cm_id *id;
static struct ibv_mr *bells_mr;
static uint8_t *bells;
static uint64_t head_to;
static uint32_t head_stag;

static void fail(const char *what)
{
	printf("failed: %s: %s\n", what, strerror(errno));
	exit(1);
}

static void post_bell(uint64_t number)
{
	if (rdma_post_recv(id, (void *)(uintptr_t)number, bells + number * RECORD, RECORD, bells_mr))
		fail("rdma_post_recv");
}

/* Tells the device that all octets below ``head`` may be overwritten. Each call frees a quarter of the ring, so at most
 * four are on their way at once. It is no error if the connection has ended: what has arrived is still received.
 */
static void write_head(uint64_t head)
{
	struct ibv_wc wc;
	while (ibv_poll_cq(id->send_cq, 1, &wc) > 0)
		if (wc.status != IBV_WC_SUCCESS && wc.status != IBV_WC_WR_FLUSH_ERR) {
			printf("failed: the RDMA Write of the head: %s\n", ibv_wc_status_str(wc.status));
			exit(1);
		}
	head = htole64(head);
	rdma_post_write(id, NULL, &head, sizeof head, NULL, IBV_SEND_SIGNALED | IBV_SEND_INLINE, head_to, head_stag);
}

/* Connects with the place of the ring as private data, and takes the place of the head from the Reply. */
static void connect_ring(const char *address, const char *port, uint8_t *ring, uint32_t octets, uint32_t buffers)
{
	struct rdma_addrinfo hints = { .ai_port_space = RDMA_PS_TCP }, *found;
	struct ibv_qp_init_attr attr = {
		.cap = { .max_send_wr = 16, .max_recv_wr = buffers, .max_send_sge = 1, .max_recv_sge = 1,
			 .max_inline_data = sizeof(uint64_t) },
	};
	struct place place;
	struct rdma_conn_param param = { .private_data = &place, .private_data_len = PLACE, .retry_count = 7 };
	if (rdma_getaddrinfo(address, port, &hints, &found))
		fail("rdma_getaddrinfo");
	if (rdma_create_ep(&id, found, NULL, &attr))
		fail("rdma_create_ep");
	struct ibv_mr *ring_mr = ibv_reg_mr(id->pd, ring, octets, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	bells_mr = ibv_reg_mr(id->pd, bells, buffers * RECORD, IBV_ACCESS_LOCAL_WRITE);
	if (!ring_mr || !bells_mr)
		fail("ibv_reg_mr");
	for (uint32_t n = 0; n < buffers; n++)
		post_bell(n);
	place = (struct place){ htobe64((uintptr_t)ring), htobe32(ring_mr->rkey), htobe32(octets) };
	if (rdma_connect(id, &param))
		fail("rdma_connect");
	const struct rdma_conn_param *reply = &id->event->param.conn;
	if (reply->private_data_len < PLACE) {
		printf("failed: the Reply has %u octets of private data, and a place has %u\n", reply->private_data_len, PLACE);
		exit(1);
	}
	memcpy(&place, reply->private_data, PLACE);
	head_to = be64toh(place.to);
	head_stag = be32toh(place.stag);
}

static uint64_t number_of(const char *word, const char *name, uint64_t value)
{
	size_t length = strlen(name);
	return strncmp(word, name, length) || word[length] != '=' ? value : strtoull(word + length + 1, NULL, 0);
}

int main(int count, char **arguments)
{
	uint64_t octets = 1 << 16, slow = 0, tail = 0, freed = 0, dropped = 0, next = 0, rung = 0, gaps = 0;
	FILE *file = NULL;
	struct ibv_wc wc;
	if (count < 3) {
		printf("usage: samples ADDRESS PORT [ring=OCTETS] [slow=MILLISECONDS] [file=NAME]\n");
		return 2;
	}
	for (int n = 3; n < count; n++) {
		octets = number_of(arguments[n], "ring", octets);
		slow = number_of(arguments[n], "slow", slow);
		if (!strncmp(arguments[n], "file=", 5) && !(file = fopen(arguments[n] + 5, "wb")))
			fail(arguments[n]);
	}
	if (octets < 4096 || octets > 1 << 24 || octets % SAMPLE) {
		printf("failed: a ring has 4096 to %d octets, and whole samples, not %" PRIu64 "\n", 1 << 24, octets);
		return 2;
	}
	uint32_t buffers = octets / 1024 + 16; /* more than doorbells can be on their way */
	uint8_t *ring = calloc(1, octets);
	bells = calloc(buffers, RECORD);
	connect_ring(arguments[1], arguments[2], ring, octets, buffers);
	write_head(0); /* an initiator sends first (RFC 5044 §7.1.2) */
	while (rdma_get_recv_comp(id, &wc) == 1 && wc.status == IBV_WC_SUCCESS) {
		uint64_t record[2];
		memcpy(record, bells + wc.wr_id * RECORD, RECORD);
		post_bell(wc.wr_id);
		uint64_t told = le64toh(record[0]), lost = le64toh(record[1]) - dropped;
		if (wc.byte_len != RECORD || told < tail || told > freed + octets || told % SAMPLE) {
			printf("failed: a record of %u octets, which says %" PRIu64 " behind %" PRIu64 "\n", wc.byte_len, told, tail);
			return 1;
		}
		rung++;
		gaps += lost != 0;
		dropped += lost;
		next += lost;
		for (; tail < told; tail += SAMPLE, next++) {
			uint32_t sample;
			memcpy(&sample, ring + tail % octets, SAMPLE);
			if (le32toh(sample) != (uint32_t)next) {
				printf("failed: sample %u where %" PRIu64 " is due\n", le32toh(sample), next);
				return 1;
			}
			if (file && !fwrite(&sample, SAMPLE, 1, file))
				fail("fwrite");
		}
		usleep(1000 * slow);
		if (tail - freed >= octets / 4)
			write_head(freed = tail);
	}
	if (wc.status != IBV_WC_WR_FLUSH_ERR) {
		printf("failed: a doorbell: %s\n", ibv_wc_status_str(wc.status));
		return 1;
	}
	if (file && fclose(file))
		fail("fclose");
	printf("received %" PRIu64 " samples in %" PRIu64 " doorbells\n", tail / SAMPLE, rung);
	printf("dropped %" PRIu64 " before the last of them, in %" PRIu64 " gaps\n", dropped, gaps);
	return 0;
}
