// What is searched for together: distances from the sources of some owners to the targets of each.
//
// A node is a source of each owner nearby. A search from it serves all of them, so the owners of a batch are gathered first, and
// each node of the batch is searched from once.
#pragma once
#include <cstdint>
#include <vector>

#include "job.hpp"

namespace geoattn::sparse::GEOATTN_ISA {

struct Ask {  // pairs of one owner
    std::int32_t owner;
    bool back;  // the owner is the second of each pair, and a directed search goes against the edges
    const std::int64_t *first, *last;
    std::vector<std::int32_t> sources, targets;  // the first source is the owner
    std::size_t place;                           // of its distances, (targets, sources)
};

struct Use {  // a source as an ask has it
    std::int32_t ask, local;
};

class Batch {
  public:
    std::vector<Ask> asks;
    std::size_t count = 0;  // asks in use; the others keep their memory
    std::size_t cells = 0;

    explicit Batch(const Job& job) : number_(job.n, -1) {}

    Ask& next() {
        if (count == asks.size()) asks.emplace_back();
        Ask& ask = asks[count++];
        ask.sources.clear(), ask.targets.clear();
        return ask;
    }
    void close(Ask& ask) {
        ask.place = cells;
        cells += ask.sources.size() * ask.targets.size();
    }
    void clear() { count = cells = 0; }

    // use(nodes, uses by node): the different sources of the asks of one direction, and who has them
    template <class Search> void each_source(bool back, Search search) {
        nodes_.clear(), start_.assign(1, 0);
        for (std::size_t k = 0; k < count; ++k)
            if (asks[k].back == back)
                for (const std::int32_t a : asks[k].sources) {
                    if (number_[a] < 0) number_[a] = std::int32_t(nodes_.size()), nodes_.push_back(a), start_.push_back(0);
                    ++start_[number_[a] + 1];
                }
        for (std::size_t k = 0; k < nodes_.size(); ++k) start_[k + 1] += start_[k];
        uses_.resize(start_.back());
        next_.assign(start_.begin(), start_.end());
        for (std::size_t k = 0; k < count; ++k)
            if (asks[k].back == back)
                for (std::size_t s = 0; s < asks[k].sources.size(); ++s)
                    uses_[next_[number_[asks[k].sources[s]]]++] = {std::int32_t(k), std::int32_t(s)};
        for (const std::int32_t a : nodes_) number_[a] = -1;
        if (!nodes_.empty()) search(nodes_, start_, uses_);
    }

  private:
    std::vector<std::int32_t> number_, nodes_;
    std::vector<std::size_t> start_, next_;
    std::vector<Use> uses_;
};

}  // namespace geoattn::sparse::GEOATTN_ISA
