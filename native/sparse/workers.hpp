// Threads that take pieces of work until none is left, while the caller's thread looks up ten times a second.
#pragma once
#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace geoattn::sparse {

class Progress {
  public:
    std::function<bool()> look;  // called by the caller's thread; true: stop
    std::atomic<std::int64_t> done{0};

    bool stopped() const { return stop_.load(std::memory_order_relaxed); }

    // body(piece, worker) for each piece once, on `threads` workers; what one of them throws is thrown here.
    template <class Body> void each(std::int64_t pieces, int threads, Body body) {
        std::atomic<std::int64_t> next{0};
        std::mutex mutex;
        std::condition_variable over;
        int running = 0;
        std::exception_ptr failure;
        const auto work = [&](int worker) {
            try {
                for (std::int64_t k; !stopped() && (k = next.fetch_add(1)) < pieces;) body(k, worker);
            } catch (...) {
                const std::lock_guard lock(mutex);
                failure = std::current_exception();
                stop_ = true;
            }
            const std::lock_guard lock(mutex);
            if (--running == 0) over.notify_one();
        };
        const int crew = int(std::clamp<std::int64_t>(threads, 1, std::max<std::int64_t>(pieces, 1)));
        std::vector<std::thread> workers;
        {
            std::unique_lock lock(mutex);
            running = crew;
            for (int t = 0; t < crew; ++t) workers.emplace_back(work, t);
            while (!over.wait_for(lock, std::chrono::milliseconds(100), [&] { return running == 0; })) {
                lock.unlock();
                if (look && !stopped() && look()) stop_ = true;
                lock.lock();
            }
        }
        for (auto& worker : workers) worker.join();
        if (failure) std::rethrow_exception(failure);
    }

  private:
    std::atomic<bool> stop_{false};
};

}  // namespace geoattn::sparse
