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

// A thread takes a piece of the groups at once. Large ones share more searches, small ones let all threads end at the same time.
constexpr std::int64_t PIECE = 16, LARGEST = 4096, PIECES = 2;
constexpr std::int64_t FEW = 64;    // pairs that are not worth a second thread

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
        if (start[g] < start[g + 1]) groups.push_back({std::int32_t(g / 2), g % 2 == 1, order.data() + start[g], order.data() + start[g + 1]});
    for (std::int64_t k = 0; k < job.count; ++k) order[start[key[k]]++] = k;

    const int threads = job.count < FEW ? 1 : job.threads;
    const std::int64_t count = std::int64_t(groups.size());
    const std::int64_t size = job.upstream ? PIECE : std::clamp(count / (PIECES * threads), PIECE, LARGEST);
    const std::int64_t pieces = (count + size - 1) / size;
    std::vector<Terms> terms(job.upstream ? pieces : 0);
    std::vector<std::unique_ptr<Pairs>> crew(std::max(1, threads));
    progress.each(pieces, threads, [&](std::int64_t piece, int worker) {
        if (!crew[worker]) crew[worker] = std::make_unique<Pairs>(job, pendants);
        crew[worker]->solve(groups.data() + piece * size, groups.data() + std::min((piece + 1) * size, count), job.upstream ? &terms[piece] : nullptr,
                            [&] { return progress.stopped(); }, [&] { progress.done.fetch_add(1, std::memory_order_relaxed); });
    });
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
