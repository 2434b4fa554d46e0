# The SACK dumbbell in ns-2: ns dumbbell.tcl FLOWS SECONDS [tuned]
#
# 45 Mbit/s and 10 ms with a buffer of 400 packets between access links of 100 Mbit/s and 1 ms; endless flows started
# 10 ms apart, segments of 1460 bytes in packets of 1500, an acknowledgement per segment. Prints the segments that were
# acknowledged. Tuned, packet headers nobody uses are left out and routes are set by hand: ns-2 at its best.

if {$argc < 2 || $argc > 3 || ($argc == 3 && [lindex $argv 2] ne "tuned")} {
    puts stderr "usage: ns dumbbell.tcl FLOWS SECONDS \[tuned\]"
    exit 2
}
lassign $argv flows seconds
set tuned [expr {$argc == 3}]

if {$tuned} {
    remove-all-packet-headers
    add-packet-header IP TCP Flags
}
set ns [new Simulator]
if {$tuned} {
    $ns rtproto Manual
}

proc join {a b rate delay packets} {
    global ns
    $ns duplex-link $a $b $rate $delay DropTail
    $ns queue-limit $a $b $packets
    $ns queue-limit $b $a $packets
}

proc by_default {node next} {
    global tuned
    if {$tuned} {
        [$node get-module Manual] add-route-to-adj-node -default $next
    }
}

proc directly {node neighbour} {
    global tuned
    if {$tuned} {
        [$node get-module Manual] add-route-to-adj-node $neighbour
    }
}

Agent/TCP set packetSize_ 1460
Agent/TCP set window_ 65536
Agent/TCP set windowInit_ 10
Agent/TCP set minrto_ 1.0
Agent/TCP set tcpTick_ 0.001

set left [$ns node]
set right [$ns node]
join $left $right 45Mb 10ms 400
by_default $left $right
by_default $right $left
for {set i 0} {$i < $flows} {incr i} {
    set source($i) [$ns node]
    set sink($i) [$ns node]
    join $source($i) $left 100Mb 1ms 1000
    join $sink($i) $right 100Mb 1ms 1000
    by_default $source($i) $left
    by_default $sink($i) $right
    directly $left $source($i)
    directly $right $sink($i)

    set tcp($i) [new Agent/TCP/Sack1]
    set receiver [new Agent/TCPSink/Sack1]
    $ns attach-agent $source($i) $tcp($i)
    $ns attach-agent $sink($i) $receiver
    $ns connect $tcp($i) $receiver
    set ftp [new Application/FTP]
    $ftp attach-agent $tcp($i)
    $ns at [expr {0.01 * $i}] "$ftp start"
}

$ns at $seconds {
    set segments 0
    for {set i 0} {$i < $flows} {incr i} {
        incr segments [expr {[$tcp($i) set ack_] + 1}]
    }
    puts $segments
    exit 0
}
$ns run
