/* Runs on the CPU of a SoC of `rnic litex BOARD --cpu-type vexriscv`, without any library. A peer fills the buffer by an
   RDMA Write, whose last word is the number of the request; it reads the answer, in capitals, by an RDMA Read. */

struct buffer {
	char text[1016];
	unsigned asked;    /* number of the request, written by the peer */
	unsigned answered; /* number of the last request that has been answered */
};

/* What the host's driver registers first: it keeps 64 octets at the beginning of main_ram, the memory of the RNIC. */
static volatile struct buffer *const buffer = (struct buffer *)0x40000040;

/* VexRiscv's cache does not see what the RNIC writes. What the CPU writes passes through it. */
static void forget_cache(void)
{
	__asm__ volatile(".word 0x500F" ::: "memory");
}

static void serve(void)
{
	for (unsigned done = buffer->asked;; ) {
		forget_cache();
		if (buffer->asked == done)
			continue;
		for (unsigned n = 0; n < sizeof buffer->text; n++)
			if (buffer->text[n] >= 'a' && buffer->text[n] <= 'z')
				buffer->text[n] -= 'a' - 'A';
		buffer->answered = done = buffer->asked;
	}
}

__attribute__((naked, section(".start"))) void start(void)
{
	__asm__("la sp, stack; j %0" :: "i"(serve));
}
