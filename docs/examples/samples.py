"""Samples of a simulated device's fabric stream into the memory of another process, which counts and plots them.

Without arguments, both ends; ``serve [PORT]`` or ``read HOST PORT``, behind the options: one of them. ``--host
ADDRESS``: ``serve`` listens there. ``--drop``: the device drops samples instead of waiting. ``--slow S``: the reader
sleeps S seconds for each block. ``--plot FILE``: a picture of all samples.
"""

import argparse
import asyncio
import struct
import sys
from functools import partial

from open_rnic.host_driver import rdma
from open_rnic.host_driver.devices import open_device
from open_rnic.host_driver.rdma.samples import (
    Delivery,
    Pattern,
    SampleReader,
    SamplesError,
    SampleWriter,
    SignalGenerator,
)

SAMPLES, PERIODS = 50_000, 2
ROWS, COLUMNS = 17, 60


async def serve(options: argparse.Namespace, read: bool = False) -> None:
    device = partial(open_device, "simulated", lanes=4, offload=True)
    await (await device()).close()  # builds the simulation, once
    async with await rdma.listen(options.host, options.port, device=device) as listener:
        host, number = listener.address[:2]
        if read:
            words = ["--slow", str(options.slow), "--plot", options.plot, "read", host, str(number)]
            reader = await asyncio.create_subprocess_exec(sys.executable, __file__, *words)
        else:
            print("listening at", host, "port", number, flush=True)
        async with await SampleWriter.accept(await listener.request(), Delivery(drops=options.drop)) as writer:
            generator = await SignalGenerator.open(writer.connection.device)
            await writer.start()
            await generator.start(Pattern.SINE, samples=SAMPLES, turns=PERIODS / SAMPLES)
            signal = await generator.finished(writer.connection)
            status = await writer.finish()  # when all samples have been announced, and the reader has closed
        if read:
            await reader.wait()
    print(f"device: {signal.given} samples, {status.octets // writer.sample} written, {status.dropped} dropped")


async def read(options: argparse.Namespace) -> None:
    numbers: list[int] = []
    values: list[int] = []
    async with await SampleReader.connect(options.host, options.port) as reader:
        async for block in reader:
            expected = (numbers[-1] + 1 if numbers else 0) + block.lost
            for value, low in struct.iter_unpack("<hH", block.octets):  # the number has 16 bits in a sample
                if low != expected & 0xFFFF:
                    sys.exit(f"reader: sample {low} where {expected & 0xFFFF} is due")
                numbers.append(expected)
                values.append(value)
                expected += 1
            await asyncio.sleep(options.slow)
    print(f"reader: {len(numbers)} samples in {reader.bells} blocks, {reader.lost} lost before the last of them")
    for row in range(ROWS):
        at = row * (len(values) - 1) // (ROWS - 1)
        print(f"{numbers[at]:6}" + " " * (COLUMNS // 2 + values[at] * COLUMNS // 0xFFFF) + "*")
    if options.plot:
        from matplotlib.figure import Figure

        figure = Figure(layout="constrained")
        figure.subplots().plot(numbers, values, ",")
        figure.savefig(options.plot)


def port(text: str) -> int:
    if not 0 <= int(text) < 1 << 16:
        raise ValueError(text)
    return int(text)


parser = argparse.ArgumentParser()
ends = parser.add_subparsers(dest="end")
ends.add_parser("serve").add_argument("port", nargs="?", type=port, default=0)
reading = ends.add_parser("read")
reading.add_argument("host")
reading.add_argument("port", type=port)
parser.add_argument("--host", default="127.0.0.1")
parser.add_argument("--drop", action="store_true")
parser.add_argument("--slow", type=float, default=0)
parser.add_argument("--plot", default="")
parser.set_defaults(port=0)
options = parser.parse_args()
try:
    asyncio.run(read(options) if options.end == "read" else serve(options, options.end is None))
except (OSError, ValueError, SamplesError) as error:
    sys.exit(f"{options.end or 'device'}: {error}")
except KeyboardInterrupt:
    sys.exit(130)
