// Asks again and again, by the processor's time of one OS thread, whether its fibers get on: a thread that waits in a
// plain loop for another never comes back to the emulator. Linux only; elsewhere such a launch goes on for ever.
#pragma once

#include "block.h"

#ifdef __linux__
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#endif

// Milliseconds between two looks. Tests set it.
extern "C" __attribute__((visibility("default"))) int emu_patience = 10'000;

namespace emu {

// While it lives, `look` is called within the thread that made it. It may leave by another way than it came: kernels
// hold nothing that must be given back.
class Watchdog {
#ifdef __linux__
 public:
    explicit Watchdog(void (*look)(int)) {
        struct sigaction action = {};
        action.sa_handler = look;
        action.sa_flags = SA_NODEFER | SA_RESTART;
        sigaction(signal, &action, &before);
        sigevent event = {};
        event.sigev_notify = SIGEV_THREAD_ID;
        event.sigev_signo = signal;
        event._sigev_un._tid = pid_t(syscall(SYS_gettid));
        is_made = timer_create(CLOCK_THREAD_CPUTIME_ID, &event, &timer) == 0;
        const timespec step = {emu_patience / 1000, emu_patience % 1000 * 1'000'000L};
        const itimerspec steps = {step, step};
        if (is_made) timer_settime(timer, 0, &steps, nullptr);
    }
    ~Watchdog() {
        if (is_made) timer_delete(timer);
        sigaction(signal, &before, nullptr);
    }
    Watchdog(const Watchdog&) = delete;

 private:
    const int signal = SIGRTMAX - 3;
    struct sigaction before;
    timer_t timer;
    bool is_made;
#else
 public:
    explicit Watchdog(void (*)(int)) {}
#endif
};

}  // namespace emu
