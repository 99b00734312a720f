// The part of a network that a pair is solved on first, in small matrices of its own: the nodes at which the measures differ
// most, on the distances between them. Its optimal tree leaves half of the long pivots of the whole, and its own are short.
// A long part has a first stage of its own.
#pragma once
#include "simplex.hpp"
#include "start_tree.hpp"

namespace geoattn::GEOATTN_ISA {

template <int V, bool PART = false> class CutSimplex;

template <int V> struct FirstStage {
    Network net;
    CutSimplex<V, true> solver;
    Row<std::int64_t> supply, nothing;
    std::vector<std::int16_t> number;  // of a class of the whole network, -1 if it is not in the part

    explicit FirstStage(const Network& parent)
        : net(part_of(parent)), solver(net), supply(net.n), nothing(net.n, 0), number(net.whole->n) {}

    // The first nodes of an order. What the others give or take, or half of it, is left to the nearest of them: without it the
    // pivots of the whole are a third more, and longer. The root takes what is missing in the balance.
    template <class Order> void choose(const Network& parent, const Order& order, const std::int64_t* supplies, double allowed) {
        allowed_ = 0.5 * allowed;  // the rest of the tree adds to it
        const Network& whole = *net.whole;
        const bool nested = parent.whole != nullptr;
        std::fill(number.begin(), number.end(), std::int16_t(-1));
        for (int a = 0; a < net.n; ++a) {
            const int v = order.place_of(a);
            net.members[a] = nested ? parent.members[v] : v;
            number[net.members[a]] = std::int16_t(a);
            supply[a] = supplies[v];
        }
        if (!nested) gather(whole);
        for (int k = whole.near.empty() ? parent.n : net.n; k < parent.n; ++k) {
            const int v = order.place_of(k), node = nested ? parent.members[v] : v;
            const std::uint16_t* near = &whole.near[std::size_t(node) * Network::NEAR];
            int nearest = -1;
            for (int i = Network::NEAR - 1; i >= 0; --i) nearest = number[near[i]] >= 0 ? number[near[i]] : nearest;
            if (nearest >= 0) supply[nearest] += supplies[v] >> whole.halved;
        }
    }

    Supplies<std::int64_t> supplies_of() const { return {supply.data(), nothing.data(), 0, 0, 0, allowed_}; }

    // From the tree that has grown; its optimal tree, or how far it came, parents first, in names of the parent's classes.
    template <class Order> void solve(const Order& order, std::vector<Branch>& tree, double negligible, const Stop& stop) {
        const Outcome outcome = solver.solve(supplies_of(), 0, negligible, stop);
        if (outcome != Outcome::optimal && outcome != Outcome::stalled && outcome != Outcome::tied) return;
        solver.from_root([&](double length, int node, int parent, bool out) {
            tree.push_back({length, order.place_of(node), order.place_of(parent), out});
        });
    }

  private:
    double allowed_ = 0;

    void gather(const Network& whole) {
        for (int a = 0; a < net.n; ++a) {
            const std::size_t from = std::size_t(net.members[a]) * whole.stride;
            std::int16_t* own = net.rough_to.data() + std::size_t(a) * net.stride;
            if (net.directed) {
                std::int16_t* back = net.rough_from.data() + std::size_t(a) * net.stride;
                for (int b = 0; b < net.n; ++b) own[b] = whole.rough_to[from + net.members[b]];
                for (int b = 0; b < net.n; ++b) back[b] = whole.rough_from[from + net.members[b]];
            } else {
                std::int16_t* column = net.rough_to.data() + a;
                for (int b = 0; b < a; ++b) own[b] = column[std::size_t(b) * net.stride] = whole.rough_to[from + net.members[b]];
            }
        }
    }

    static Network part_of(const Network& parent) {
        Network part;
        const bool nested = parent.whole != nullptr;
        part.whole = nested ? parent.whole : &parent;
        part.n = parent.few;
        part.directed = parent.directed;
        part.members.resize(part.n);
        part.reach = parent.reach;
        part.rough_scale = parent.rough_scale;
        part.few = V == 0 && part.n >= 128 ? part.n / 4 : 0;
        part.stride = nested ? parent.stride : V ? 16 * V : (part.n + 15) / 16 * 16;
        if (nested) {  // the first rows and columns of the parent's
            for (int out : {0, 1}) part.part_rows[out] = parent.part_rows[out];
            return part;
        }
        const std::size_t size = std::size_t(std::max(part.n, 1)) * part.stride;
        part.rough_to.assign(size, 32767);
        if (part.directed) part.rough_from.assign(size, 32767);
        for (int a = 0; a < part.n; ++a) part.rough_to[std::size_t(a) * part.stride + a] = 0;
        part.part_rows[1] = part.rough_to.data();
        part.part_rows[0] = part.directed ? part.rough_from.data() : part.part_rows[1];
        return part;
    }
};

}  // namespace geoattn::GEOATTN_ISA
