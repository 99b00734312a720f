// Four threads call the kernel at once, each with threads of its own: built with the thread sanitizer by `make sanitize`.
//
// Every caller solves its own maps, of all kinds of codes: short and long rows, ties, directed maps, parts, sparse graphs in
// edges and in lengths, gradients. What it finds must have the bits that one caller alone finds.
#include <cmath>
#include <cstdio>
#include <limits>
#include <random>
#include <thread>
#include <vector>

#include "../../native/job.hpp"
#include "../../native/sparse/job.hpp"
#include "../../native/sparse/workers.hpp"

namespace {

constexpr double INF = std::numeric_limits<double>::infinity();
constexpr int CALLERS = 4, THREADS = 2;

#if defined(GEOATTN_HAVE_V3)
namespace kernel = geoattn::v3;
namespace sparse_kernel = geoattn::sparse::v3;
#else
namespace kernel = geoattn::baseline;
namespace sparse_kernel = geoattn::sparse::baseline;
#endif

using Values = std::vector<double>;

void add(Values& all, const Values& some) { all.insert(all.end(), some.begin(), some.end()); }

// A map of weights in `levels` steps (0: no two alike), with a share of the edges, and its rows as measures.
struct Map {
    int n;
    Values lengths, measures;

    Map(int size, unsigned seed, int levels, double share, bool directed) : n(size), lengths(n * n, INF), measures(n * n, 0.0) {
        std::mt19937 random(seed);
        std::uniform_real_distribution<double> uniform(0.0, 1.0);
        Values weight(n * n);
        for (double& w : weight) {
            w = uniform(random) < share ? 0.05 + uniform(random) : 0.0;
            if (levels) w = std::ceil(w * levels) / levels;
        }
        for (int u = 0; u < n; ++u) weight[u * n + u] += 0.5, weight[u * n + (u + 1) % n] += 0.5;
        for (int u = 0; u < n; ++u) {
            double sum = 0;
            for (int v = 0; v < n; ++v) sum += weight[u * n + v];
            for (int v = 0; v < n; ++v) measures[u * n + v] = weight[u * n + v] / sum;
        }
        for (int u = 0; u < n; ++u)
            for (int v = 0; v < n; ++v) {
                const double w = directed ? weight[u * n + v] : (weight[u * n + v] + weight[v * n + u]) / 2;
                if (u != v && w > 0) lengths[u * n + v] = 2.0 - w / 2;
            }
    }
};

Values dense(unsigned seed, int n, int levels, double share, bool directed) {
    const Map map(n, seed, levels, share, directed);
    std::vector<std::int32_t> pairs;
    for (int u = 0; u < n && pairs.size() < 2 * 24; ++u)
        for (int v = u + 1; v < n && pairs.size() < 2 * 24; v += 1 + n / 8)
            if (map.lengths[u * n + v] < INF) pairs.push_back(u), pairs.push_back(v);
    const std::int64_t count = std::int64_t(pairs.size() / 2), offsets[2] = {0, count};
    Values w1(count, NAN), denominator(count), distance(count), gap(count, NAN);
    std::vector<std::uint8_t> status(count);
    std::vector<std::int32_t> trees(count * n);
    geoattn::Job job;
    job.graphs = 1, job.n = n, job.lengths = map.lengths.data(), job.measures = map.measures.data();
    job.pairs = pairs.data(), job.offsets = offsets, job.directed = directed, job.threads = THREADS;
    job.w1 = w1.data(), job.denominator = denominator.data(), job.distance = distance.data(), job.gap = gap.data();
    job.status = status.data(), job.trees = trees.data();
    kernel::solve(job);
    const Values upstream(count, 1.0);
    Values to_lengths(n * n, 0.0), to_measures(n * n, 0.0), distances = map.lengths, found;
    kernel::pull_back({&job, upstream.data(), to_lengths.data(), to_measures.data()});
    for (int u = 0; u < n; ++u) distances[u * n + u] = 0;
    kernel::shortest_paths(distances.data(), n, directed, THREADS, job.stop);
    for (const Values* each : {&w1, &gap, &to_lengths, &to_measures, &distances}) add(found, *each);
    found.insert(found.end(), status.begin(), status.end());
    return found;
}

// A ring with chords, of one length or of many.
Values sparse(unsigned seed, int n, bool hops) {
    std::mt19937 random(seed);
    std::vector<std::vector<std::int32_t>> to(n);
    const auto join = [&](int u, int v) {
        if (u == v || std::find(to[u].begin(), to[u].end(), v) != to[u].end()) return;
        to[u].push_back(v), to[v].push_back(u);
    };
    for (int u = 0; u < n; ++u) join(u, (u + 1) % n), join(u, int(random() % unsigned(n)));
    std::vector<std::int64_t> start(1, 0);
    std::vector<std::int32_t> column, pairs;
    Values length, mass, pair_length;
    for (int u = 0; u < n; ++u) {
        std::sort(to[u].begin(), to[u].end());
        for (const std::int32_t v : to[u]) {
            column.push_back(v), mass.push_back(1.0 / double(to[u].size()));
            length.push_back(hops ? 1.0 : 1.0 + 0.01 * double((u * 7 + v * 7) % 97) + 0.001 * double((u * v) % 89));
            if (u < v) pairs.push_back(u), pairs.push_back(v), pair_length.push_back(length.back());
        }
        start.push_back(std::int64_t(column.size()));
    }
    const std::int64_t count = std::int64_t(pairs.size() / 2);
    Values w1(count, NAN), denominator(count), distance(count), gap(count, NAN);
    std::vector<std::uint8_t> status(count);
    geoattn::sparse::Job job;
    job.n = n, job.out = job.in = {start.data(), column.data(), length.data()};
    job.measures = job.seconds = {start.data(), column.data(), mass.data()};
    job.count = count, job.pairs = pairs.data(), job.lengths = pair_length.data(), job.hop = hops ? 1.0 : 0.0;
    job.near = true, job.threads = THREADS;
    job.w1 = w1.data(), job.denominator = denominator.data(), job.distance = distance.data(), job.gap = gap.data();
    job.status = status.data();
    geoattn::sparse::Progress progress;
    sparse_kernel::solve(job, progress);
    Values found;
    for (const Values* each : {&w1, &gap, &distance}) add(found, *each);
    return found;
}

Values all_of(unsigned caller) {
    Values found;
    for (unsigned round = 0; round < 3; ++round) {
        const unsigned seed = 100 * caller + round;
        for (const int n : {4, 30, 66, 140, 270, 540}) {
            if (n > 200 && round > 0) continue;
            add(found, dense(seed, n, 0, 1.0, false));
            add(found, dense(seed, n, 3, 0.3, false));
            add(found, dense(seed, n, n < 100 ? 2 : 0, 0.4, true));
        }
        for (const bool hops : {true, false}) add(found, sparse(seed, 300, hops));
    }
    return found;
}

bool same_bits(const Values& one, const Values& other) {
    if (one.size() != other.size()) return false;
    for (std::size_t k = 0; k < one.size(); ++k)
        if (!(one[k] == other[k] || (std::isnan(one[k]) && std::isnan(other[k])))) return false;
    return true;
}

}  // namespace

int main() {
    std::vector<Values> together(CALLERS);
    std::vector<std::thread> callers;
    for (int c = 0; c < CALLERS; ++c) callers.emplace_back([&, c] { together[c] = all_of(unsigned(c)); });
    for (std::thread& caller : callers) caller.join();
    std::size_t values = 0;
    for (int c = 0; c < CALLERS; ++c) {
        values += together[c].size();
        if (same_bits(together[c], all_of(unsigned(c)))) continue;
        std::printf("caller %d found other values beside the others than alone\n", c);
        return 1;
    }
    std::printf("%d callers at once, %zu values: the same bits as one after the other\n", CALLERS, values);
    return 0;
}
