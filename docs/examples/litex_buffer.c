/* Runs on the CPU of a SoC of `rnic litex BOARD --cpu-type vexriscv`, without any library. A peer fills the buffer by an
   RDMA Write, whose last word is the number of the request. The CPU answers in capitals: the peer reads the buffer by an
   RDMA Read, or gets the text by an RDMA Write of the CPU, if the request names memory for it. */

#include <generated/csr.h>
#include <generated/mem.h>
#include <generated/soc.h>
#include <irq.h>

struct buffer {
	char text[1000];
	unsigned stag;     /* of the peer's memory for the answer, or 0 */
	unsigned to[2];    /* the TO in it, low half first */
	unsigned link;     /* the RNIC's register LINK, answered by the CPU */
	unsigned answered; /* number of the last request that has been answered */
	unsigned asked;    /* number of the request, written by the peer */
};

/* What the host's driver registers first: it keeps 64 octets at the beginning of the RNIC's memory, main_ram. */
#define PLACE 64
static volatile struct buffer *const buffer = (struct buffer *)(MAIN_RAM_BASE + PLACE);

/* Page ff of the RNIC's registers is that of its Ethernet port. */
#define LINK (0xff * 1024 + 0x010)

static unsigned read_register(unsigned address)
{
	rnic_registers_access_write(address);
	while (rnic_registers_busy_read())
		;
	return rnic_registers_word_read();
}

/* The only connection is number 0. An RDMA Write has the Opcode 0 (RFC 5040 §4.1). The octets must not change before the
   work is done; it fails, at the latest, when the connection ends. Returns whether it is done. */
static int write_to_peer(unsigned address, unsigned octets, unsigned stag, unsigned long long to)
{
	unsigned failed = rnic_work_failed_read();

	rnic_work_ev_pending_write(1); /* of a report before */
	rnic_work_address_write(address);
	rnic_work_octets_write(octets);
	rnic_work_stag_write(stag);
	rnic_work_to_write(to);
	rnic_work_post_write(0);
	while (!(irq_pending() & 1 << RNIC_WORK_INTERRUPT))
		;
	return rnic_work_failed_read() == failed;
}

static void serve(void)
{
	irq_setmask(1 << RNIC_WORK_INTERRUPT);
	rnic_work_ev_enable_write(1);
	for (unsigned done = buffer->asked;; ) {
		flush_cpu_dcache(); /* It does not see what the RNIC writes. What the CPU writes passes through it. */
		if (buffer->asked == done)
			continue;
		for (unsigned n = 0; n < sizeof buffer->text; n++)
			if (buffer->text[n] >= 'a' && buffer->text[n] <= 'z')
				buffer->text[n] -= 'a' - 'A';
		done = buffer->asked;
		buffer->link = read_register(LINK);
		if (!buffer->stag || write_to_peer(PLACE, sizeof buffer->text, buffer->stag,
						   buffer->to[0] | (unsigned long long)buffer->to[1] << 32))
			buffer->answered = done;
	}
}

__attribute__((naked, section(".start"))) void start(void)
{
	__asm__("la sp, stack; j %0" :: "i"(serve));
}
