// All shortest paths, source by source (Dijkstra), with a bound that ends most searches after a few nodes.
//
// A node k can shorten the way from a source to b only if d(k) + l(k, b) < d(b), and no edge into b is shorter than its
// shortest one, near(b). So only nodes with d(k) < limit = max over b of d(b) - near(b) matter, and of their edges those
// with l(k, b) - near(b) < limit - d(k). In attention maps the limit falls within a few steps: through the sink of a head
// all tokens are reached at once, and in flat maps hardly any way of two edges is shorter than one.
//
// And only essential edges matter (Karger, Koller and Phillips), those that no way beats. Most others are beaten by a way over
// one of the HUBS nearest neighbours of a node. What is left, in the order of l - near, is the list of the node; a list that
// would be long is cut after WIDTH edges, and a search that needs more of it looks at the whole row. Time about n times the
// edges that are left, n^3 at worst; memory n per source and thread.
#pragma once
#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <vector>

#include "lengths.hpp"
#include "threads.hpp"

namespace geoattn::GEOATTN_ISA {

class PathSearch {
  public:
    PathSearch(const Lengths& lengths, bool directed, Crew& crew, const Stop& stop)
        : lengths_(lengths), n_(lengths.size()), directed_(directed), stop_(stop), near_(n_, INF), lists_(n_) {
        for (int u = 0; u < n_; ++u)
            for (int v = 0; v < n_; ++v) {
                const double length = u == v ? INF : lengths(u, v);
                near_[v] = length < near_[v] ? length : near_[v];
            }
        crew.each_block(n_, [&](int from, int end) {
            Search s(n_);
            for (int k = from; k < end && !stop.asked(); ++k) list_edges(k, s);
        });
        if (directed) find_reach(crew);
    }

    // Scratch of one thread.
    struct Search {
        explicit Search(int n) : distance(n), via(n), near(n), hops(n), settled(n) { heap.reserve(std::size_t(n)); }
        std::vector<double> distance;  // of each node from the source, infinite without a way
        std::vector<double> via;       // the node before it on the way
        int most_hops = 0;             // of all ways so far
        std::vector<double> near;
        std::vector<std::int32_t> hops;  // of settled nodes
        std::vector<char> settled;
        std::vector<std::pair<double, std::int32_t>> heap;
    };

    void from(int source, Search& s) const {
        settle(source, s);
        for (int b = 0; b < n_; ++b) {
            if (!(s.distance[b] < INF) || b == source) continue;
            int hops = 1, before = int(s.via[b]);
            for (; !s.settled[before]; ++hops) before = int(s.via[before]);
            s.most_hops = std::max(s.most_hops, s.hops[before] + hops);
        }
    }

  private:
    void settle(int source, Search& s) const {
        const double* row = lengths_.row(source);
        double limit = -INF;
        for (int b = 0; b < n_; ++b) {
            s.distance[b] = row[b] * lengths_.factor(source, b);
            s.via[b] = source;
            s.near[b] = !directed_ || reach_[std::size_t(source) * n_ + b] ? near_[b] : INF;
            const double most = s.distance[b] - s.near[b];
            limit = b != source && most > limit ? most : limit;
        }
        s.distance[source] = 0;
        for (const int hub : lists_[source].hubs)  // nearly all ways, in long vectors
            limit = std::min(limit, lengths_.relax(hub, s.distance[hub], s.distance.data(), s.via.data(), s.near.data()));
        std::fill(s.settled.begin(), s.settled.end(), 0);
        s.settled[source] = 1;
        s.hops[source] = 0;
        const auto later = [](const auto& a, const auto& b) { return a > b; };
        s.heap.clear();
        for (int b = 0; b < n_; ++b)
            if (b != source && s.distance[b] < limit) s.heap.emplace_back(s.distance[b], b);
        std::make_heap(s.heap.begin(), s.heap.end(), later);
        for (int pops = 1, look = 8; !s.heap.empty(); ++pops) {
            if (pops == look) {
                look *= 2;
                double now = -INF;
                for (int b = 0; b < n_; ++b) {
                    const double most = s.distance[b] - s.near[b];
                    now = most > now ? most : now;
                }
                limit = std::min(limit, now);
            }
            const auto [distance, k] = s.heap.front();
            if (!(distance < limit)) return;
            std::pop_heap(s.heap.begin(), s.heap.end(), later);
            s.heap.pop_back();
            if (s.settled[k]) continue;
            s.settled[k] = 1;
            s.hops[k] = s.hops[std::size_t(s.via[k])] + 1;
            const double room = limit - distance;
            const auto push = [&](int b) {
                s.heap.emplace_back(s.distance[b], b);
                std::push_heap(s.heap.begin(), s.heap.end(), later);
            };
            const List& list = lists_[k];
            if (!(list.rest < room)) {
                for (const auto& [excess, length, b] : list.edges) {
                    if (!(excess < room)) break;
                    const double sum = distance + length;
                    if (!(sum < s.distance[b]) || s.settled[b]) continue;
                    s.distance[b] = sum;
                    s.via[b] = k;
                    if (sum < limit) push(b);
                }
            } else {
                limit = std::min(limit, lengths_.relax(k, distance, s.distance.data(), s.via.data(), s.near.data()));
                for (int b = 0; b < n_; ++b)
                    if (s.via[b] == k && s.distance[b] < limit && !s.settled[b]) push(b);
            }
        }
    }

    static constexpr int WIDTH = 64, HUBS = 16;
    struct List {
        struct Edge {
            double excess, length;  // length - near(head)
            std::int32_t head;
            bool operator<(const Edge& other) const { return excess < other.excess; }
        };
        std::vector<Edge> edges;
        std::vector<std::int32_t> hubs;  // the nearest neighbours
        double rest = INF;               // the least excess of what the list lacks
    };
    const Lengths& lengths_;
    int n_;
    bool directed_;
    const Stop& stop_;
    std::vector<double> near_;         // the shortest edge into a node
    std::vector<List> lists_;
    std::vector<char> reach_;          // of directed graphs: whether there is a way

    void list_edges(int k, Search& s) {
        auto& row = s.heap;
        row.clear();
        for (int b = 0; b < n_; ++b) {
            s.distance[b] = b == k ? 0 : lengths_(k, b);
            if (s.distance[b] < INF && b != k) row.emplace_back(s.distance[b], b);
        }
        const auto hubs = row.begin() + std::min(HUBS, int(row.size()));
        std::partial_sort(row.begin(), hubs, row.end());
        for (auto hub = row.begin(); hub != hubs; ++hub)
            lengths_.relax(hub->second, hub->first, s.distance.data(), s.via.data(), near_.data());
        List& list = lists_[k];
        for (auto hub = row.begin(); hub != hubs; ++hub) list.hubs.push_back(hub->second);
        constexpr double MARGIN = 1 + 1e-14;  // sums round
        for (int b = 0; b < n_; ++b) {
            const double length = b == k ? INF : lengths_(k, b);
            if (length < INF && length <= s.distance[b] * MARGIN) list.edges.push_back({length - near_[b], length, b});
        }
        if (int(list.edges.size()) > std::max(WIDTH, std::min(n_ / 2, 1024))) {
            std::nth_element(list.edges.begin(), list.edges.begin() + WIDTH, list.edges.end());
            list.rest = list.edges[WIDTH].excess;
            list.edges.resize(WIDTH);
            list.edges.shrink_to_fit();
        }
        std::sort(list.edges.begin(), list.edges.end());
    }

    void find_reach(Crew& crew) {
        const int words = (n_ + 63) / 64;
        std::vector<std::uint64_t> edges(std::size_t(n_) * words, 0);
        for (int u = 0; u < n_; ++u)
            for (int v = 0; v < n_; ++v)
                if (lengths_.given(u, v) < INF) edges[std::size_t(u) * words + v / 64] |= 1ull << (v % 64);
        reach_.assign(std::size_t(n_) * n_, 0);
        crew.each_block(n_, [&](int from, int end) {
            std::vector<std::uint64_t> seen(words), open(words);
            for (int u = from; u < end && !stop_.asked(); ++u) {
                std::fill(seen.begin(), seen.end(), 0);
                std::copy_n(&edges[std::size_t(u) * words], words, open.begin());
                for (bool more = true; more;) {
                    more = false;
                    for (int w = 0; w < words; ++w)
                        while (const std::uint64_t left = open[w] & ~seen[w]) {
                            const std::uint64_t bit = left & -left;
                            seen[w] |= bit;
                            more = true;
                            const std::uint64_t* next = &edges[std::size_t(w * 64 + __builtin_ctzll(bit)) * words];
                            for (int x = 0; x < words; ++x) open[x] |= next[x];
                        }
                }
                for (int v = 0; v < n_; ++v) reach_[std::size_t(u) * n_ + v] = seen[v / 64] >> (v % 64) & 1;
            }
        });
    }
};

}  // namespace geoattn::GEOATTN_ISA
