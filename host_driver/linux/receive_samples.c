/* Receives samples of a device in a ring of this process's memory, with librdmacm and libibverbs alone.
 *
 *     receive_samples [OPTION...] ADDRESS PORT
 *
 *     -r OCTETS        the ring's size; default: 1 MiB
 *     -s OCTETS        the size of a sample; default: 4
 *     -o FILE          write the samples to a file; -: to standard output
 *     -w MILLISECONDS  wait after each doorbell, as a slow program does
 *     -c               check that samples of 4 octets count up from 0, as those of the pattern COUNTER
 *
 * A line each second has the rate and the samples that were lost, on standard error. The program ends when the device
 * has sent its last sample, or on Ctrl-C. docs/samples.md has the protocol.
 *
 *     gcc -O2 -o receive_samples receive_samples.c -lrdmacm -libverbs
 */
#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { PLACE = 16, RECORD = 16, LEAST_RING = 4096, LARGEST_RING = 1 << 24 };

struct place { /* of registered memory, in network order */
	uint64_t to;
	uint32_t stag, octets;
};

static const char *usage = "usage: receive_samples [-r RING] [-s SAMPLE] [-o FILE] [-w MS] [-c] ADDRESS PORT\n";
static struct rdma_cm_id *id;
static struct ibv_mr *bells_mr;
static uint8_t *bells;
static uint64_t head_to;
static uint32_t head_stag;
static uint32_t sample_octets = 4;
static volatile sig_atomic_t interrupted;

static void fail(const char *what)
{
	const char *hint = errno == ENODEV ? ": `rdma link` must show an RDMA device of the interface that leads there" : "";
	fprintf(stderr, "receive_samples: %s: %s%s\n", what, strerror(errno), hint);
	exit(1);
}

static double now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec + time.tv_nsec / 1e9;
}

/* Ends the wait for a doorbell. The alarm does so again, in case the wait begins only now. */
static void interrupt(int number)
{
	(void)number;
	interrupted = 1;
	alarm(1);
}

static void post_bell(uint64_t number)
{
	if (rdma_post_recv(id, (void *)(uintptr_t)number, bells + number * RECORD, RECORD, bells_mr))
		fail("rdma_post_recv");
}

/* Lets the device overwrite all octets below ``head``. Each call frees a quarter of the ring, so at most four are on
 * their way at once. It is no error if the connection has ended: what has arrived is still received.
 */
static void write_head(uint64_t head)
{
	struct ibv_wc wc;
	while (ibv_poll_cq(id->send_cq, 1, &wc) > 0)
		if (wc.status != IBV_WC_SUCCESS && wc.status != IBV_WC_WR_FLUSH_ERR) {
			fprintf(stderr, "receive_samples: the RDMA Write of the head: %s\n", ibv_wc_status_str(wc.status));
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
		fail(address);
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
		fprintf(stderr, "receive_samples: the Reply has %u octets of private data, and a place has %u\n",
			reply->private_data_len, PLACE);
		exit(1);
	}
	memcpy(&place, reply->private_data, PLACE);
	head_to = be64toh(place.to);
	head_stag = be32toh(place.stag);
}

/* Writes ``count`` octets of the ring, and checks that they count up from sample ``next`` on, as asked for. */
static void take(const uint8_t *octets, size_t count, uint64_t next, FILE *file, int checks)
{
	for (size_t at = 0; checks && at < count; at += sample_octets, next++) {
		uint32_t sample;
		memcpy(&sample, octets + at, sizeof sample);
		if (le32toh(sample) != (uint32_t)next) {
			fprintf(stderr, "receive_samples: sample %u where %" PRIu64 " is due\n", le32toh(sample), next);
			exit(1);
		}
	}
	if (file && fwrite(octets, 1, count, file) != count)
		fail("fwrite");
}

static uint64_t number(char option, const char *text, uint64_t least, uint64_t most)
{
	char *end;
	errno = 0;
	uint64_t value = strtoull(text, &end, 0);
	if (*text < '0' || *text > '9' || *end || errno || value < least || value > most) {
		fprintf(stderr, "receive_samples: -%c is a number from %" PRIu64 " to %" PRIu64 ", not %s\n", option, least,
			most, text);
		exit(2);
	}
	return value;
}

int main(int count, char **arguments)
{
	uint64_t octets = 1 << 20, slow = 0, tail = 0, freed = 0, dropped = 0, rung = 0, gaps = 0, printed_tail = 0;
	double first = 0, last = 0, printed = 0;
	int option, checks = 0, got = 0;
	FILE *file = NULL;
	struct ibv_wc wc;
	while ((option = getopt(count, arguments, "r:s:o:w:c")) != -1)
		switch (option) {
		case 'r':
			octets = number('r', optarg, LEAST_RING, LARGEST_RING);
			break;
		case 's':
			sample_octets = number('s', optarg, 1, LEAST_RING / 4);
			break;
		case 'w':
			slow = number('w', optarg, 0, 100000);
			break;
		case 'o':
			if (!(file = strcmp(optarg, "-") ? fopen(optarg, "wb") : stdout))
				fail(optarg);
			break;
		case 'c':
			checks = 1;
			break;
		default:
			fputs(usage, stderr);
			return 2;
		}
	if (count - optind != 2) {
		fputs(usage, stderr);
		return 2;
	}
	if (octets % sample_octets || (checks && sample_octets != 4)) {
		fprintf(stderr, checks && sample_octets != 4 ? "receive_samples: -c checks samples of 4 octets, not %" PRIu32 "\n"
			: "receive_samples: a ring has whole samples of %" PRIu32 " octets\n", sample_octets);
		return 2;
	}
	uint32_t buffers = octets / 1024 + 16; /* more than doorbells can be on their way */
	uint8_t *ring = calloc(1, octets);
	bells = calloc(buffers, RECORD);
	if (!ring || !bells)
		fail("calloc");
	connect_ring(arguments[optind], arguments[optind + 1], ring, octets, buffers);
	struct sigaction action = { .sa_handler = interrupt }; /* without SA_RESTART, which would go on waiting */
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGALRM, &action, NULL);
	write_head(0); /* an initiator sends first (RFC 5044 §7.1.2) */
	while (!interrupted && (got = rdma_get_recv_comp(id, &wc)) == 1 && wc.status == IBV_WC_SUCCESS) {
		uint64_t record[2];
		memcpy(record, bells + wc.wr_id * RECORD, RECORD);
		post_bell(wc.wr_id);
		uint64_t end = le64toh(record[0]), lost = le64toh(record[1]) - dropped;
		if (wc.byte_len != RECORD || end < tail || end > freed + octets || end % sample_octets) {
			fprintf(stderr, "receive_samples: a record of %u octets, which says %" PRIu64 " behind %" PRIu64 "\n",
				wc.byte_len, end, tail);
			return 1;
		}
		last = now();
		if (!rung++)
			first = printed = last;
		gaps += lost != 0;
		dropped += lost;
		while (tail < end) { /* in two pieces, if the ring's end is between them */
			uint64_t at = tail % octets, piece = octets - at < end - tail ? octets - at : end - tail;
			take(ring + at, piece, tail / sample_octets + dropped, file, checks);
			tail += piece;
		}
		usleep(1000 * slow);
		if (tail - freed >= octets / 4)
			write_head(freed = tail);
		if (last - printed >= 1) {
			fprintf(stderr, "%.2f MB/s, %" PRIu64 " samples received, %" PRIu64 " dropped\n",
				(tail - printed_tail) / (last - printed) / 1e6, tail / sample_octets, dropped);
			printed = last;
			printed_tail = tail;
		}
	}
	alarm(0);
	if (interrupted)
		write_head(tail);
	else if (got != 1)
		fail("rdma_get_recv_comp");
	else if (wc.status != IBV_WC_WR_FLUSH_ERR) {
		fprintf(stderr, "receive_samples: a doorbell: %s\n", ibv_wc_status_str(wc.status));
		return 1;
	}
	if (file && fclose(file))
		fail("fclose");
	fprintf(stderr, "received %" PRIu64 " samples in %" PRIu64 " doorbells, in %.3f s\n", tail / sample_octets, rung,
		last - first);
	fprintf(stderr, "dropped %" PRIu64 " before the last of them, in %" PRIu64 " gaps\n", dropped, gaps);
	return 0;
}
