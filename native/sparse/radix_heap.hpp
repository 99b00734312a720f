// A queue of nodes by distance for searches in which no distance is ever smaller than the last one that was taken.
//
// The bits of a double that is not negative order like the number itself. An entry lies in the bucket of the highest bit in which it
// differs from the last one taken; when the lowest bucket is used up, the next one is dealt out to those below it.
#pragma once
#include <bit>
#include <cstdint>
#include <utility>
#include <vector>

namespace geoattn::sparse::GEOATTN_ISA {

class RadixHeap {
  public:
    struct Entry {
        std::uint64_t key;
        std::int32_t node;
    };

    bool empty() const { return used_ == 0 && buckets_[0].empty(); }

    void clear() {
        for (; used_ != 0; used_ &= used_ - 1) buckets_[1 + std::countr_zero(used_)].clear();
        buckets_[0].clear();
        last_ = 0;
    }

    void push(double distance, std::int32_t node) { put({std::bit_cast<std::uint64_t>(distance), node}); }

    // One of the nearest.
    std::pair<double, std::int32_t> pop() {
        if (buckets_[0].empty()) deal();
        const Entry entry = buckets_[0].back();
        buckets_[0].pop_back();
        return {std::bit_cast<double>(entry.key), entry.node};
    }

  private:
    std::vector<Entry> buckets_[65];
    std::uint64_t last_ = 0, used_ = 0;  // used_: buckets from 1 on that hold something

    void put(const Entry& entry) {
        const int bucket = 64 - std::countl_zero(entry.key ^ last_);
        buckets_[bucket].push_back(entry);
        if (bucket > 0) used_ |= std::uint64_t(1) << (bucket - 1);
    }
    void deal() {
        std::vector<Entry>& from = buckets_[1 + std::countr_zero(used_)];
        used_ &= used_ - 1;
        last_ = from.front().key;
        for (const Entry& entry : from) last_ = entry.key < last_ ? entry.key : last_;
        for (const Entry& entry : from) put(entry);  // all of them go to lower buckets
        from.clear();
    }
};

}  // namespace geoattn::sparse::GEOATTN_ISA
