/* Reads and writes memory that a device offers, by RDMA, with librdmacm and libibverbs alone.
 *
 *     memory ADDRESS PORT                         print how much there is
 *     memory ADDRESS PORT read [OFFSET [OCTETS]]  read it to standard output
 *     memory ADDRESS PORT write [OFFSET]          write standard input to it
 *     memory ADDRESS PORT test                    write random octets to all of it, read them, and compare
 *
 * Numbers may begin with 0x. What has been done, and how long it took, is printed on standard error. ``rnic memory``
 * offers memory: docs/maker.md.
 *
 *     gcc -O2 -o memory memory.c -lrdmacm -libverbs
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
#include <time.h>
#include <unistd.h>

enum { PLACE = 16, SMALL = 64, READS = 100 };
enum { TRIES = 16, PAUSE = 200000 }; /* microseconds */

static const char *usage = "usage: memory ADDRESS PORT [read [OFFSET [OCTETS]] | write [OFFSET] | test]\n";
static struct rdma_cm_id *id;
static struct ibv_mr *work_mr;
static uint8_t *work; /* an octet more than the memory */
static uint64_t memory_to;
static uint32_t memory_stag, memory_octets;

static void fail(const char *what)
{
	const char *hint = errno == ENODEV ? ": `rdma link` must show an RDMA device of the interface that leads there" : "";
	fprintf(stderr, "memory: %s: %s%s\n", what, strerror(errno), hint);
	exit(1);
}

static double now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec + time.tv_nsec / 1e9;
}

/* Connects, and takes the place of the memory from the Reply's private data: TO (64), STag (32) and length (32) in
 * network order. A board with one connection refuses another one until the last has been closed at both ends, so it
 * tries for 3 seconds.
 */
static void connect_memory(const char *address, const char *port)
{
	struct rdma_addrinfo hints = { .ai_port_space = RDMA_PS_TCP }, *found;
	struct rdma_conn_param param = { .initiator_depth = 1, .retry_count = 7 };
	if (rdma_getaddrinfo(address, port, &hints, &found))
		fail(address);
	for (int tries = 1;; tries++) {
		struct ibv_qp_init_attr attr = { /* rdma_create_ep writes the queues that it has made into it */
			.cap = { .max_send_wr = 4, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
		};
		if (rdma_create_ep(&id, found, NULL, &attr))
			fail("rdma_create_ep");
		if (!rdma_connect(id, &param))
			break;
		if (errno != ECONNREFUSED || tries == TRIES)
			fail("rdma_connect");
		rdma_destroy_ep(id);
		usleep(PAUSE);
	}
	const struct rdma_conn_param *reply = &id->event->param.conn;
	if (reply->private_data_len < PLACE) {
		fprintf(stderr, "memory: the Reply has %u octets of private data, and a place has %u\n",
			reply->private_data_len, PLACE);
		exit(1);
	}
	memcpy(&memory_to, reply->private_data, 8);
	memcpy(&memory_stag, (const uint8_t *)reply->private_data + 8, 4);
	memcpy(&memory_octets, (const uint8_t *)reply->private_data + 12, 4);
	memory_to = be64toh(memory_to);
	memory_stag = be32toh(memory_stag);
	memory_octets = be32toh(memory_octets);
	work = calloc(1, memory_octets + 1ull);
	if (!work)
		fail("calloc");
	/* Where the octets of an RDMA Read arrive, iWARP needs the right of the peer to write (RFC 5040 §5.2). */
	work_mr = ibv_reg_mr(id->pd, work, memory_octets + 1ull, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	if (!work_mr)
		fail("ibv_reg_mr");
}

static void complete(const char *what)
{
	struct ibv_wc wc;
	if (rdma_get_send_comp(id, &wc) != 1)
		fail("rdma_get_send_comp");
	if (wc.status != IBV_WC_SUCCESS) {
		fprintf(stderr, "memory: the RDMA %s: %s\n", what, ibv_wc_status_str(wc.status));
		exit(1);
	}
}

static void read_octets(uint64_t offset, uint32_t octets)
{
	if (rdma_post_read(id, NULL, work, octets, work_mr, IBV_SEND_SIGNALED, memory_to + offset, memory_stag))
		fail("rdma_post_read");
	complete("Read");
}

/* An RDMA Write completes when it has left. The answer to an RDMA Read behind it shows that it is in memory
 * (RFC 5040 §5.5). The octet read goes behind the work.
 */
static void write_octets(uint64_t offset, uint32_t octets)
{
	if (rdma_post_write(id, NULL, work, octets, work_mr, IBV_SEND_SIGNALED, memory_to + offset, memory_stag))
		fail("rdma_post_write");
	complete("Write");
	if (rdma_post_read(id, NULL, work + memory_octets, 1, work_mr, IBV_SEND_SIGNALED, memory_to, memory_stag))
		fail("rdma_post_read");
	complete("Read behind the Write");
}

static void report(const char *what, uint64_t offset, uint32_t octets, double seconds)
{
	fprintf(stderr, "%s %" PRIu32 " octets at %" PRIu64 " in %.6f s, %.2f MB/s\n", what, octets, offset, seconds,
		octets / seconds / 1e6);
}

/* Writes random octets to all of the memory, reads and compares them, and measures the time of small RDMA Reads. */
static int test(void)
{
	uint32_t small = memory_octets < SMALL ? memory_octets : SMALL, state = time(NULL) | 1;
	uint8_t *random = malloc(memory_octets);
	if (!random)
		fail("malloc");
	for (uint32_t n = 0; n < memory_octets; n++) {
		state = state * 1664525 + 1013904223;
		random[n] = state >> 24;
	}
	memcpy(work, random, memory_octets);
	double began = now();
	write_octets(0, memory_octets);
	report("wrote", 0, memory_octets, now() - began);
	memset(work, 0, memory_octets);
	began = now();
	read_octets(0, memory_octets);
	report("read", 0, memory_octets, now() - began);
	for (uint32_t n = 0; n < memory_octets; n++)
		if (work[n] != random[n]) {
			fprintf(stderr, "memory: octet %" PRIu32 " is %u, and %u was written\n", n, work[n], random[n]);
			return 1;
		}
	began = now();
	for (int n = 0; n < READS; n++)
		read_octets(0, small);
	fprintf(stderr, "an RDMA Read of %" PRIu32 " octets takes %.1f us, the mean of %d\n", small,
		(now() - began) / READS * 1e6, READS);
	fprintf(stderr, "all %" PRIu32 " octets are as written\n", memory_octets);
	return 0;
}

static uint64_t number(const char *what, const char *text, uint64_t most)
{
	char *end;
	errno = 0;
	uint64_t value = strtoull(text, &end, 0);
	if (*text < '0' || *text > '9' || *end || errno || value > most) {
		fprintf(stderr, "memory: %s is a number up to %" PRIu64 ", not %s\n", what, most, text);
		exit(2);
	}
	return value;
}

int main(int count, char **words)
{
	const char *act = count > 3 ? words[3] : "";
	int reads = !strcmp(act, "read"), writes = !strcmp(act, "write"), tests = !strcmp(act, "test");
	if (count < 3 || count > (reads ? 6 : writes ? 5 : tests ? 4 : 3)) {
		fputs(usage, stderr);
		return 2;
	}
	connect_memory(words[1], words[2]);
	uint64_t offset = count > 4 ? number("OFFSET", words[4], memory_octets) : 0;
	uint32_t octets = count > 5 ? number("OCTETS", words[5], memory_octets - offset) : memory_octets - offset;
	int status = 0;
	if (tests)
		status = test();
	else if (reads) {
		double began = now();
		read_octets(offset, octets);
		report("read", offset, octets, now() - began);
		if (fwrite(work, 1, octets, stdout) != octets || fflush(stdout))
			fail("standard output");
	} else if (writes) {
		size_t given = fread(work, 1, octets + 1ull, stdin);
		if (ferror(stdin))
			fail("standard input");
		if (given > octets) {
			fprintf(stderr, "memory: standard input has more than the %" PRIu32 " octets from %" PRIu64 " on\n", octets,
				offset);
			return 1;
		}
		double began = now();
		write_octets(offset, given);
		report("wrote", offset, given, now() - began);
	} else
		fprintf(stderr, "%" PRIu32 " octets\n", memory_octets);
	rdma_disconnect(id);
	return status;
}
