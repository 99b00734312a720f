// What is searched for together: distances from the sources of some owners to the targets of each.
//
// A node is a source of each owner nearby. A search from it serves all of them, so the owners of a round are gathered first, and
// each node is searched from once. Threads share the owners, then the nodes, then the pairs.
#pragma once
#include <cstdint>
#include <vector>

#include "job.hpp"

namespace geoattn::sparse::GEOATTN_ISA {

struct Group {  // all pairs of one owner
    std::int32_t owner;
    bool back;  // the owner is the second of each pair, and a directed search goes against the edges
    const std::int64_t *first, *last;
};

struct Ask {  // some pairs of one owner, mostly all
    std::int32_t owner = 0;
    bool back = false;
    const std::int64_t *first = nullptr, *last = nullptr;
    std::vector<std::int32_t> sources, targets;  // the first source is the owner
    std::size_t place = 0;                       // of its distances, (targets, sources)
};

struct Source {  // a node to search from: its uses are at first .. last
    std::int32_t node;
    std::size_t first, last;
};
struct Use {  // a source as an ask has it
    const Ask* ask;
    std::int32_t local;
};

class Round {
  public:
    std::vector<std::vector<Ask>> asks;  // by piece of the round
    std::vector<Source> sources[2];      // of searches along the edges, and against them
    std::vector<Use> uses;
    std::vector<std::int32_t> steps;  // distances in edges of all asks, or
    std::vector<double> lengths;      // along edges of different lengths

    explicit Round(const Job& job) : number_(job.n, -1) {}

    // Once all asks are known.
    void collect(bool in_edges) {
        std::size_t cells = 0;
        uses.clear();
        for (auto& some : asks)
            for (Ask& ask : some) ask.place = cells, cells += ask.sources.size() * ask.targets.size();
        if (in_edges) steps.resize(cells);
        else lengths.resize(cells);
        for (const bool back : {false, true}) collect_sources(back);
    }

  private:
    std::vector<std::int32_t> number_;

    void collect_sources(bool back) {
        auto& found = sources[back];
        found.clear();
        const auto each = [&](auto use) {
            for (const auto& some : asks)
                for (const Ask& ask : some)
                    for (std::size_t s = 0; ask.back == back && s < ask.sources.size(); ++s) use(ask, s);
        };
        each([&](const Ask& ask, std::size_t s) {
            std::int32_t& number = number_[ask.sources[s]];
            if (number < 0) number = std::int32_t(found.size()), found.push_back({ask.sources[s], 0, 0});
            ++found[number].last;
        });
        std::size_t place = uses.size();
        for (Source& source : found) {
            const std::size_t count = source.last;
            source.first = source.last = place;
            place += count;
        }
        uses.resize(place);
        each([&](const Ask& ask, std::size_t s) { uses[found[number_[ask.sources[s]]].last++] = {&ask, std::int32_t(s)}; });
        for (const Source& source : found) number_[source.node] = -1;
    }
};

}  // namespace geoattn::sparse::GEOATTN_ISA
