// Work on several threads.
#pragma once
#include <algorithm>
#include <atomic>
#include <functional>
#include <thread>
#include <vector>

namespace geoattn::GEOATTN_ISA {

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
    for (int t = 1; t < std::min(threads, count); ++t) crew.emplace_back(work);
    work();
    for (auto& member : crew) member.join();
}

}  // namespace geoattn::GEOATTN_ISA
