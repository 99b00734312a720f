// Work on several threads.
#pragma once
#include <algorithm>
#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <vector>

#include "stop.hpp"

namespace geoattn::GEOATTN_ISA {

// The threads of one call. They start at once, so that they are awake when there is work for them, and look out for it for a
// while before they sleep: to start or to wake a thread takes as long as a hundred pairs of a small graph.
class Crew {
  public:
    explicit Crew(int threads, const Stop* stop = nullptr) : stop_(stop) {
        for (int t = 1; t < threads; ++t) others_.emplace_back([this] { serve(); });
    }
    Crew(const Crew&) = delete;
    ~Crew() {
        {
            std::lock_guard lock(mutex_);
            over_ = true;
        }
        called_.notify_all();
        for (auto& other : others_) other.join();
    }

    int size() const { return 1 + int(others_.size()); }

    // body(0) ... body(count - 1), each once, on all threads; what one of them throws is thrown here.
    void each(int count, const std::function<void(int)>& body) {
        if (others_.empty() || count <= 1) {
            for (int k = 0; k < count; ++k) body(k);
            return;
        }
        body_ = &body, count_ = count, next_ = 0, failure_ = nullptr;
        {
            std::lock_guard lock(mutex_);
            open_ = true;
            ++round_;
        }
        called_.notify_all();
        work();
        open_ = false;  // who comes late finds nothing; who is at work is waited for
        for (int tries = 0; inside_ > 0; ++tries) {
            if (tries < LOOKS) {
                std::this_thread::yield();
            } else {
                std::unique_lock lock(mutex_);
                left_.wait_for(lock, std::chrono::milliseconds(50), [&] { return inside_ == 0; });
            }
            if (stop_) stop_->asked();
        }
        if (failure_) std::rethrow_exception(failure_);
    }

    // The same in blocks, body(from, to), where one number alone is too little work to ask for.
    template <class Body> void each_block(int count, Body body) {
        constexpr int BLOCK = 16;
        each((count + BLOCK - 1) / BLOCK, [&](int k) { body(k * BLOCK, std::min(count, (k + 1) * BLOCK)); });
    }

  private:
    static constexpr int LOOKS = 300;
    const Stop* stop_;
    const std::function<void(int)>* body_ = nullptr;
    int count_ = 0;
    std::atomic<int> next_{0}, inside_{0}, round_{0};
    std::atomic<bool> open_{false}, over_{false};
    std::exception_ptr failure_;
    std::mutex mutex_;
    std::condition_variable called_, left_;
    std::vector<std::thread> others_;

    void work() {
        try {
            for (int k; (k = next_.fetch_add(1)) < count_;) (*body_)(k);
        } catch (...) {
            next_ = count_;
            std::lock_guard lock(mutex_);
            failure_ = std::current_exception();
        }
    }

    void serve() {
        for (int served = 0; !over_;) {
            const auto called = [&] { return over_ || round_ != served; };
            for (int tries = 0; !called() && tries < LOOKS; ++tries) std::this_thread::yield();
            if (!called()) {
                std::unique_lock lock(mutex_);
                called_.wait(lock, called);
            }
            ++inside_;  // before the look at open_: it is closed before inside_ is read
            served = round_;
            if (open_) work();
            if (--inside_ == 0) {
                std::lock_guard lock(mutex_);
                left_.notify_one();
            }
        }
    }
};

inline void parallel_for(int threads, int count, const std::function<void(int)>& body) { Crew(std::min(threads, count)).each(count, body); }

}  // namespace geoattn::GEOATTN_ISA
