// Lengths and measures of one graph -> all that its pairs share: distances, connected parts, their networks.
#pragma once
#include <cmath>

#include "job.hpp"
#include "metric.hpp"

namespace geoattn::GEOATTN_ISA {

// Everything the pairs of one graph share.
struct Prepared {
    Matrix lengths, distances;
    std::vector<int> part, label;   // connected part of a node; its class in the part's network
    std::vector<Network> networks;  // one per part that some pair lies in
    std::vector<int> network_of_part;
};

inline int find(std::vector<int>& parent, int x) {
    while (parent[x] != x) x = parent[x] = parent[parent[x]];
    return x;
}

// The shortest way from each node to another one.
inline std::vector<double> nearest_other(const Matrix& d) {
    std::vector<double> least(d.n);
    Row<double> beyond(d.stride, 0.0);
    for (int a = 0; a < d.n; ++a) {
        beyond[a] = INF;
        least[a] = min_sum(d[a], beyond.data(), d.stride);
        beyond[a] = 0;
    }
    return least;
}

// The classes of a part, with the lengths and the distances between them.
inline void merge_nodes(const Prepared& p, const std::vector<int>& nodes, std::vector<int>& label, Network& net) {
    const Matrix& d = p.distances;
    const std::vector<double> nearest = nearest_other(d);
    for (int x : nodes) {  // merge nodes at distance 0 both ways
        int same = -1;
        for (int k = 0, end = nearest[x] > 0 ? 0 : int(net.members.size()); k < end && same < 0; ++k)
            if (d[x][net.members[k]] == 0 && d[net.members[k]][x] == 0) same = k;
        if (same < 0) same = int(net.members.size()), net.members.push_back(x);
        label[x] = same;
    }
    net.n = int(net.members.size());
    if (net.n == d.n) {
        net.out = p.lengths;
        net.distances = d;
        return;
    }
    net.out = Matrix(net.n);
    net.distances = Matrix(net.n);
    for (int x : nodes)
        for (int y : nodes) {
            const int a = label[x], b = label[y];
            if (a != b) net.out[a][b] = std::min(net.out[a][b], p.lengths[x][y]);
        }
    for (int a = 0; a < net.n; ++a)
        for (int b = 0; b < net.n; ++b) net.distances[a][b] = d[net.members[a]][net.members[b]];
}

inline Network build_network(const Prepared& p, const std::vector<int>& nodes, std::vector<int>& label, bool directed, Crew& crew,
                             const Stop& stop, bool to_solve) {
    Network net;
    net.directed = directed;
    merge_nodes(p, nodes, label, net);
    const Matrix& between = net.distances;
    Matrix turned(directed ? net.n : 0);
    if (directed)
        for (int a = 0; a < net.n; ++a)
            for (int b = 0; b < net.n; ++b) turned[b][a] = between[a][b];
    const Matrix& back = directed ? turned : between;
    // A way over a third node is at least as long as the shortest steps out of a and into b: most edges need no search.
    const std::vector<double> leave = nearest_other(between), enter = directed ? nearest_other(back) : leave;
    crew.each_block(net.n, [&](int from, int end) {
        for (int a = from; a < end && !stop.asked(); ++a)
            for (int b = directed ? 0 : a + 1; b < net.n; ++b) {
                double& edge = net.out[a][b];
                if (!(edge < INF)) continue;
                if (edge > between[a][b] || (leave[a] + enter[b] <= edge && matched(between[a], back[b], between.stride, edge))) {
                    edge = INF;
                    if (!directed) net.out[b][a] = INF;
                }
            }
    });
    if (!to_solve) return net;
    double diameter = 0;
    bool one_way = false;
    for (int a = 0; a < net.n; ++a)
        for (int b = 0; b < net.n; ++b)
            if (between[a][b] < INF) diameter = std::max(diameter, between[a][b]);
            else one_way = true;
    // Potentials follow the tree; only where every pair has a way back does the metric bound them.
    net.finish(one_way ? diameter * net.n : diameter, crew);
    return net;
}

// `to_solve`: with all that the solvers need, not only the essential edges.
inline Prepared prepare(const Job& job, std::int64_t g, Crew& crew, bool to_solve = true) {
    const int n = job.n;
    const std::size_t area = std::size_t(n) * n;
    const double* lengths = job.lengths + g * area;
    Prepared p;
    p.lengths = Matrix(n);
    std::vector<int> parent(n);
    std::iota(parent.begin(), parent.end(), 0);
    for (int u = 0, apart = n; u < n; ++u) {
        std::copy_n(lengths + std::size_t(u) * n, n, p.lengths[u]);
        p.lengths[u][u] = INF;
        for (int v = 0; v < n && apart > 1; ++v) {
            if (!(p.lengths[u][v] < INF)) continue;
            const int a = find(parent, u), b = find(parent, v);
            apart -= a != b;
            parent[a] = b;
        }
    }
    p.distances = p.lengths;
    all_pairs(p.distances, job.directed, crew, job.stop);

    p.part.assign(n, -1);
    p.label.assign(n, -1);
    std::vector<std::vector<int>> parts;
    std::vector<int> part_of_root(n, -1);
    for (int v = 0; v < n; ++v) {
        int& id = part_of_root[find(parent, v)];
        if (id < 0) id = int(parts.size()), parts.emplace_back();
        p.part[v] = id;
        parts[id].push_back(v);
    }
    p.network_of_part.assign(parts.size(), -1);
    for (std::int64_t e = job.offsets[g]; e < job.offsets[g + 1]; ++e) {
        const int id = p.part[job.pairs[2 * e]];
        if (p.network_of_part[id] >= 0) continue;
        p.network_of_part[id] = int(p.networks.size());
        p.networks.push_back(build_network(p, parts[id], p.label, job.directed, crew, job.stop, to_solve));
    }
    return p;
}

}  // namespace geoattn::GEOATTN_ISA
