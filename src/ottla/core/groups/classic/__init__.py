"""Groups of the classic protocol: members join, the leader assigns the partitions, members sync."""
