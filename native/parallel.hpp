// Work on several threads.
#pragma once
#include <algorithm>
#include <atomic>
#include <functional>
#include <thread>
#include <vector>
#if defined(__linux__)
#include <sched.h>
#endif

namespace geoattn::GEOATTN_ISA {

#if defined(__linux__)
// A new thread may start on the CPU of its maker and wait there for milliseconds, as long as a small graph takes, although
// another CPU is idle: let it be moved once.
inline void leave_cpu(int cpu) {
    cpu_set_t allowed, others;
    if (cpu < 0 || sched_getcpu() != cpu || sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
    others = allowed;
    CPU_CLR(cpu, &others);
    if (CPU_COUNT(&others) > 0 && sched_setaffinity(0, sizeof others, &others) == 0) sched_setaffinity(0, sizeof allowed, &allowed);
}
inline int this_cpu() { return sched_getcpu(); }
#else
inline void leave_cpu(int) {}
inline int this_cpu() { return -1; }
#endif

// body(0) ... body(count - 1), each once, on up to `threads` threads.
inline void parallel_for(int threads, int count, const std::function<void(int)>& body) {
    if (threads <= 1 || count <= 1) {
        for (int k = 0; k < count; ++k) body(k);
        return;
    }
    std::atomic<int> next{0};
    auto work = [&] {
        for (int k; (k = next.fetch_add(1)) < count;) body(k);
    };
    std::vector<std::thread> crew;
    for (int t = 1; t < std::min(threads, count); ++t)
        crew.emplace_back([&work, maker = this_cpu()] {
            leave_cpu(maker);
            work();
        });
    std::this_thread::yield();  // to those that are to leave
    work();
    for (auto& member : crew) member.join();
}

}  // namespace geoattn::GEOATTN_ISA
