// The backward pass: optimal trees -> gradients of lengths and measures.
#pragma once
#include <optional>

#include "graph_setup.hpp"

namespace geoattn::GEOATTN_ISA {

// The nodes of the tree's path from x to y, if it runs downhill all the way. `down` is scratch: memory of its own for each
// pair would take longer than the path.
inline bool tree_path(const std::int32_t* tree, const std::vector<int>& depth, int x, int y, std::vector<int>& way,
                      std::vector<int>& down) {
    way.assign(1, x);
    down.assign(1, y);
    while (way.back() != down.back()) {
        const bool from_x = depth[way.back()] >= depth[down.back()];
        std::vector<int>& side = from_x ? way : down;
        if ((tree[side.back()] & 1) == from_x) return false;  // downhill: towards the parent on x's side, away from it on y's
        side.push_back(tree[side.back()] / 2);
    }
    way.insert(way.end(), down.rbegin() + 1, down.rend());
    return true;
}

// Shortest ways from one node of a network, found when they are asked for.
struct Ways {
    std::optional<PathSearch> search;
    std::optional<PathSearch::Search> found;
    int source = -1;
};

// d kappa = -dW1 / D + W1 dD / D^2. dW1/dlength = |flow|, dW1/dmeasure = potential; dD/dlength = 1 along one shortest
// path (or on the edge itself). Where the optimum is not unique this is one generalised gradient.
inline void gradients(const Backward& back) {
    const Job& job = *back.job;
    const int n = job.n;
    const std::size_t area = std::size_t(n) * n;
    Crew crew(int(std::min<std::int64_t>(job.threads, job.graphs)), &job.stop);
    crew.each(int(job.graphs), [&](int g) {
        if (job.offsets[g] == job.offsets[g + 1] || job.stop.asked()) return;
        Crew alone(1);
        const Prepared p = prepare(job, g, alone, false);
        const auto len = [&](int u, int v) { return p.lengths[std::size_t(u) * n + v]; };
        const double* measures = job.measures + g * area;
        double *to_lengths = back.lengths + g * area, *to_measures = back.measures + g * area;
        std::vector<double> flow(n), potential(n);
        std::vector<int> depth(n), order(n + 1), children(n), way, down;
        std::vector<Ways> ways(p.networks.size());
        // classes of several nodes: the shortest edge between two of them, and a node's representative
        auto edge_between = [&](const Network& net, int u, int v) {
            const double length = net.lengths.given(p.label[u], p.label[v]);
            if (len(u, v) == length) return std::size_t(u) * n + v;
            for (int a = 0; a < n; ++a)
                for (int b = 0; b < n; ++b)
                    if (p.part[a] == p.part[u] && p.part[b] == p.part[u] && p.label[a] == p.label[u] && p.label[b] == p.label[v] &&
                        len(a, b) == length)
                        return std::size_t(a) * n + b;
            return std::size_t(u) * n + v;
        };
        for (std::int64_t e = job.offsets[g]; e < job.offsets[g + 1]; ++e) {
            const double up = back.upstream[e];
            if (up == 0 || job.status[e] != std::uint8_t(Status::solved)) continue;
            const int x = job.pairs[2 * e], y = job.pairs[2 * e + 1];
            const std::int32_t* tree = job.trees + e * n;
            const double per_w1 = -up / job.denominator[e], per_d = up * job.w1[e] / (job.denominator[e] * job.denominator[e]);
            // Within one part: flows over the edges of its tree, and their potentials.
            const auto pull_back_part = [&](int part) {
                const Network& net = p.networks[p.network_of_part[part]];
                // Leaves first: a node follows when all its children have come. Nothing branches on that.
                int known = 0;
                for (int v : net.members) children[v] = 0;
                for (int v : net.members) children[tree[v] / 2] += tree[v] / 2 != v;
                for (int v : net.members) order[known] = v, known += children[v] == 0;
                std::fill(flow.begin(), flow.end(), 0.0);
                for (int v = 0; v < n; ++v)
                    if (p.part[v] == part)
                        flow[net.members[p.label[v]]] += measures[std::size_t(x) * n + v] - measures[std::size_t(y) * n + v];
                if (part == p.part[x]) flow[net.members[p.label[x]]] += job.idle, flow[net.members[p.label[y]]] -= job.idle;
                for (int k = 0; k < net.n - 1; ++k) {
                    const int v = order[k], a = tree[v] / 2;
                    flow[a] += flow[v];
                    const int swap = (a ^ v) & -(tree[v] & 1);  // potential falls from parent to v: flow a -> v
                    to_lengths[edge_between(net, v ^ swap, a ^ swap)] += per_w1 * std::fabs(flow[v]);
                    order[known] = a;
                    known += --children[a] == 0;
                }
                const int root = order[net.n - 1];
                potential[root] = depth[root] = 0;
                for (int k = net.n - 2; k >= 0; --k) {
                    const int v = order[k], a = tree[v] / 2, falls = tree[v] & 1, swap = (a ^ v) & -falls;
                    potential[v] = potential[a] + net.lengths.given(p.label[v ^ swap], p.label[a ^ swap]) * (1 - 2 * falls);
                    depth[v] = depth[a] + 1;
                }
                for (int v = 0; v < n; ++v) {
                    if (p.part[v] != part) continue;
                    const double slope = per_w1 * potential[net.members[p.label[v]]];
                    to_measures[std::size_t(x) * n + v] += slope;
                    to_measures[std::size_t(y) * n + v] -= slope;
                }
            };
            const int part = p.part[x];
            for (int other = 0; p.leaves && other < int(p.network_of_part.size()); ++other)
                if (other != part && tree[p.networks[p.network_of_part[other]].members[0]] >= 0) pull_back_part(other);
            pull_back_part(part);
            const Network& net = p.networks[p.network_of_part[part]];
            if (job.per_length) {
                to_lengths[std::size_t(x) * n + y] += per_d;
                continue;
            }
            // The tree's own way from x to y where it is a shortest one: its terms then cancel against those of W1.
            const int origin = net.members[p.label[x]], goal = net.members[p.label[y]];
            if (tree_path(tree, depth, origin, goal, way, down) && potential[origin] - potential[goal] >= job.distance[e] * (1 - 1e-12)) {
                for (std::size_t k = 0; k + 1 < way.size(); ++k) to_lengths[edge_between(net, way[k], way[k + 1])] += per_d;
                continue;
            }
            Ways& own = ways[p.network_of_part[part]];
            if (!own.search) own.search.emplace(net.lengths, job.directed, alone, job.stop), own.found.emplace(net.n);
            if (own.source != p.label[x]) own.search->from(own.source = p.label[x], *own.found);
            for (int v = p.label[y]; v != p.label[x];) {
                const int u = int(own.found->via[v]);
                to_lengths[edge_between(net, net.members[u], net.members[v])] += per_d;
                v = u;
            }
        }
    });
}

}  // namespace geoattn::GEOATTN_ISA
