"""Raft as Kafka has it: KIP-595, pre-vote (KIP-996), snapshots (KIP-630); voters are fixed.

`node` has the state machine. `tick` tells it the time, the `on_*` methods tell it the requests and responses of other
nodes, and `propose` gives it records to commit. These only change its state. `ready` then returns what is to be made
durable and sent, and `advance` tells the node that it was done. Safety rests on the order:

1. `Ready.hard_state` is durable before any entry of its epoch is written, and before any message leaves, a response to
   a request among them;
2. `Ready.truncate_to`, then `Ready.entries`, then a flush;
3. `Ready.messages` are sent;
4. `advance`: only now the node's own log counts for a majority, and a follower fetches what comes after.

Roles, and what leads from one to the next. In every role, a higher epoch leads to unattached, or to follower where its
leader is known as well.

    unattached  -> prospective   the election timeout is over
                -> follower      the leader of the epoch becomes known
    prospective -> candidate     a majority would vote for this node
                -> follower, or unattached if no leader is known      a majority would not, or the timeout is over
    candidate   -> leader        a majority has voted for it
                -> prospective   a majority has not, or the timeout is over
    follower    -> prospective   nothing was heard from the leader within the fetch timeout
    leader      -> resigned      it shuts down, or a majority has not fetched for 1.5 fetch timeouts
    resigned    -> unattached    the election timeout is over, in the next epoch

An observer is no voter: it is unattached, and asks one voter after the other who leads, or a follower.
"""
