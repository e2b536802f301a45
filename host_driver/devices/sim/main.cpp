// What runs every simulation: it calls cocotb in the order of IEEE 1800-2017 §4.4, and toggles the clocks.
//
// It is in a library, which a process with much of Python imported can load after a fork; launch.cpp is its program.
//
// A clock that cocotb toggles costs two callbacks and two evaluations a cycle, which is a third of a simulation's time.
// CLOCKS lists the clock inputs of the top, as X(name); start_clock, which signals.py calls, sets one of them going.

#include "Vtop.h"

namespace {

struct Clock {
    const char* name;
    CData& level;
    uint64_t half;  // steps between two edges
    uint64_t next;  // the step of the next edge
};

constexpr uint64_t NEVER = ~uint64_t{0};
uint64_t now;
std::vector<Clock> clocks;

// Calls the callbacks that wait for a change; each may change more.
void settle() {
    while (VerilatedVpi::callValueCbs()) {}
}

void evaluate(Vtop& top) {
    do {
        do {
            top.eval_step();
            VerilatedVpi::clearEvalNeeded();
            VerilatedVpi::doInertialPuts();
            settle();
        } while (VerilatedVpi::evalNeeded());
        VerilatedVpi::callCbs(cbReadWriteSynch);
        VerilatedVpi::doInertialPuts();
        settle();
    } while (VerilatedVpi::evalNeeded());
    top.eval_end_step();
    VerilatedVpi::callCbs(cbReadOnlySynch);
}

uint64_t next_event() {
    uint64_t next = VerilatedVpi::cbNextDeadline();
    for (const Clock& each : clocks) next = std::min(next, each.next);
    return next;
}

// What a timer writes at a clock's edge, the registers take at that edge; what waits for the edge comes before them.
void begin_step() {
    VerilatedVpi::callCbs(cbNextSimTime);
    settle();
    VerilatedVpi::callTimedCbs();
    VerilatedVpi::doInertialPuts();
    settle();
    for (Clock& each : clocks) {
        if (each.next != now) continue;
        each.level ^= 1;
        each.next += each.half;
    }
    settle();
}

}  // namespace

double sc_time_stamp() { return now; }

// Returns whether the top has such a clock. Its first edge follows half a period later.
extern "C" bool start_clock(const char* name, uint64_t half) {
    for (Clock& each : clocks) {
        if (std::string(each.name) != name) continue;
        each.half = half;
        each.next = now + half;
        return true;
    }
    return false;
}

extern "C" void vlog_startup_routines_bootstrap();

// Runs the simulation to its end, and returns its exit code. It may be called once in a process.
int simulate(int argc, char** argv) {
    Verilated::commandArgs(argc, argv);
    Verilated::fatalOnVpiError(false);  // cocotb looks for names that may not exist
    Vtop top("");
#define X(clock) clocks.push_back({#clock, top.clock, 0, NEVER});
    CLOCKS
#undef X
#if VM_TRACE
    VerilatedFstC waves;
    Verilated::traceEverOn(true);
    if (argc > 1) {  // the file to write
        top.trace(&waves, 99);
        waves.open(argv[1]);
    }
#endif
    vlog_startup_routines_bootstrap();
    VerilatedVpi::callCbs(cbStartOfSimulation);
    settle();
    while (!Verilated::gotFinish()) {
        evaluate(top);
#if VM_TRACE
        if (waves.isOpen()) waves.dump(now);
#endif
        const uint64_t next = next_event();
        if (next == NEVER) break;
        now = next;
        begin_step();
    }
    top.final();
    VerilatedVpi::callCbs(cbEndOfSimulation);
#if VM_TRACE
    waves.close();
#endif
    return Verilated::threadContextp()->errorCount() > 0;
}

// Does so, and ends the process. cocotb ends Python before, so this cannot return to a program in Python.
extern "C" void become_simulation(int argc, char** argv) {
    const int code = simulate(argc, argv);
    std::fflush(nullptr);
    std::_Exit(code);
}
