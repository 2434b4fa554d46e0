//! The product end to end: the real command between real programs.
//!
//! Every test moves into a [`house`] of its own: clients, a gateway that runs `anabranch run`, three access lines of
//! different rates carried by the emulator, a router per ISP and an internet with a web server, each in a network
//! namespace. Programs people use (curl, iperf3, dig, ping, tracepath) make the traffic, and tell by the address the
//! server saw which line carried it. Whatever happens to the lines and to the daemon, the programs are the judges.
//!
//! Houses are heavy and measure time, so one stands at a time. Nothing waits for a time to pass: tests wait for
//! conditions, and give up at a deadline.

mod addresses;
mod failures;
mod far;
mod ftp;
mod house;
mod lifecycle;
mod limits;
mod orders;
mod programs;
mod reload;
mod routes;
mod traffic;
