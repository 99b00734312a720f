// All pairs of a sparse graph, grouped by owner, on several threads: the same bits for any number of them.
#include <algorithm>
#include <memory>
#include <numeric>
#include <vector>

#include "pairs.hpp"
#include "workers.hpp"

namespace geoattn::sparse::GEOATTN_ISA {

namespace {

// The end of the smaller measure owns a pair; a pendant, whose measure has two nodes, before any other.
bool second_owns(const Job& job, const Pendants& pendants, std::int64_t k) {
    const std::int32_t x = job.pairs[2 * k], y = job.pairs[2 * k + 1];
    if (pendants.is_pendant(x) != pendants.is_pendant(y)) return pendants.is_pendant(y);
    // of a directed pair, whose ends search in different directions, only if it is much smaller
    return pendants.support(y, true) * (job.directed ? 4 : 1) < pendants.support(x, false);
}

constexpr std::int64_t PIECE = 16;   // groups that a thread takes at once
constexpr std::int64_t CELLS = std::int64_t(1) << 24;  // distances that are kept at once, about
constexpr std::int64_t FEW = 64;    // pairs that are not worth a second thread

// How many distances the pairs of an owner ask for, at most.
std::int64_t size(const Job& job, const Group& group) {
    std::int64_t targets = 0;
    for (const std::int64_t* k = group.first; k != group.last; ++k)
        targets += (group.back ? job.measures : job.seconds).count(job.pairs[2 * *k + (group.back ? 0 : 1)]);
    return targets * (group.back ? job.seconds : job.measures).count(group.owner);
}

}  // namespace

void solve(Job& job, Progress& progress) {
    const Pendants pendants(job);
    std::vector<std::int64_t> key(job.count), order(job.count), start(2 * std::size_t(job.n) + 1, 0);
    for (std::int64_t k = 0; k < job.count; ++k) {
        const bool back = second_owns(job, pendants, k);
        key[k] = 2 * std::int64_t(job.pairs[2 * k + back]) + back;
        ++start[key[k] + 1];
    }
    std::partial_sum(start.begin(), start.end(), start.begin());
    std::vector<Group> groups;
    for (std::int64_t g = 0; g < 2 * std::int64_t(job.n); ++g)
        if (start[g] < start[g + 1])
            groups.push_back({std::int32_t(g / 2), g % 2 == 1, order.data() + start[g], order.data() + start[g + 1]});
    for (std::int64_t k = 0; k < job.count; ++k) order[start[key[k]]++] = k;

    const int threads = job.count < FEW ? 1 : job.threads;
    const std::int64_t pieces = (std::int64_t(groups.size()) + PIECE - 1) / PIECE;
    std::vector<Terms> terms(job.upstream ? pieces : 0);
    Round round(job);
    std::vector<std::unique_ptr<Pairs>> crew(std::max(1, threads));
    const auto each = [&](std::int64_t count, auto body) {
        progress.each(count, threads, [&](std::int64_t k, int worker) {
            if (!crew[worker]) crew[worker] = std::make_unique<Pairs>(job, pendants, round);
            body(k, *crew[worker]);
        });
    };
    const auto gather = [&](std::int64_t piece, Pairs& pairs, std::vector<Ask>& asks) {
        asks.clear();
        for (std::int64_t g = piece * PIECE; g < std::min((piece + 1) * PIECE, std::int64_t(groups.size())); ++g)
            pairs.gather(groups[g], asks);
    };
    const auto solve_all = [&](std::int64_t piece, Pairs& pairs, const std::vector<Ask>& asks) {
        for (const Ask& ask : asks)
            pairs.solve(
                ask, job.upstream ? &terms[piece] : nullptr, [&] { return progress.stopped(); },
                [&] { progress.done.fetch_add(1, std::memory_order_relaxed); });
    };
    if (Pairs::looks_around(job)) {
        std::vector<std::vector<Ask>> asks(crew.size());
        progress.each(pieces, threads, [&](std::int64_t piece, int worker) {
            if (!crew[worker]) crew[worker] = std::make_unique<Pairs>(job, pendants, round);
            gather(piece, *crew[worker], asks[worker]);
            solve_all(piece, *crew[worker], asks[worker]);
        });
    } else {
        for (std::int64_t first = 0, last; first < pieces && !progress.stopped(); first = last) {
            std::int64_t cells = 0;
            for (last = first; last < pieces && cells < CELLS; ++last)
                for (std::int64_t g = last * PIECE; g < std::min((last + 1) * PIECE, std::int64_t(groups.size())); ++g)
                    cells += size(job, groups[g]);
            round.asks.resize(last - first);
            each(last - first, [&](std::int64_t k, Pairs& pairs) { gather(first + k, pairs, round.asks[k]); });
            round.collect(job.hop > 0);
            for (const bool back : {false, true}) {
                const auto& sources = round.sources[back];
                const std::int64_t blocks = (std::int64_t(sources.size()) + 63) / 64;
                each(blocks, [&](std::int64_t k, Pairs& pairs) {
                    pairs.search(sources.data() + 64 * k, int(std::min<std::int64_t>(64, std::int64_t(sources.size()) - 64 * k)), back);
                });
            }
            each(last - first, [&](std::int64_t k, Pairs& pairs) { solve_all(first + k, pairs, round.asks[k]); });
        }
    }
    if (!job.upstream || progress.stopped()) return;
    std::vector<std::int64_t> forward;  // place in `out` of each entry of `in`
    if (job.directed) {
        std::vector<std::int64_t> next(job.in.start, job.in.start + job.n);
        forward.resize(job.in.start[job.n]);
        for (std::int32_t v = 0; v < job.n; ++v)
            for (std::int64_t e = job.out.start[v]; e < job.out.start[v + 1]; ++e) forward[next[job.out.column[e]]++] = e;
    }
    for (const Terms& its : terms) {  // in their order, whoever made them
        for (const auto& [place, value] : its.lengths) job.to_lengths[place >= 0 ? place : forward[-1 - place]] += value;
        for (const auto& [place, value] : its.measures) job.to_measures[place] += value;
    }
}

}  // namespace geoattn::sparse::GEOATTN_ISA
