"""Protocol gateways (doors): servers for existing clients and workers of other queues, such as Gearman."""
