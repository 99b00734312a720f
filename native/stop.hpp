// Whether to stop. The thread that asks for some work does its share of it, so it has to look up now and then: about ten
// times a second it calls `look`.
#pragma once
#include <atomic>
#include <chrono>
#include <functional>
#include <thread>

namespace geoattn {

class Stop {
  public:
    std::function<void()> look;

    void set() { stop_.store(true, std::memory_order_relaxed); }

    bool asked() const {
        if (look && std::this_thread::get_id() == owner_ && ++calls_ % 4 == 0) {
            const auto now = Clock::now();
            if (now - last_ >= std::chrono::milliseconds(100)) last_ = now, look();
        }
        return stop_.load(std::memory_order_relaxed);
    }

  private:
    using Clock = std::chrono::steady_clock;
    const std::thread::id owner_ = std::this_thread::get_id();
    mutable unsigned calls_ = 0;                     // of the owner alone, like
    mutable Clock::time_point last_ = Clock::now();  // this
    std::atomic<bool> stop_{false};
};

}  // namespace geoattn
