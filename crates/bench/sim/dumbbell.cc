// The SACK dumbbell in ns-3: dumbbell FLOWS SECONDS
//
// 45 Mbit/s and 10 ms with a buffer of 400 packets between access links of 100 Mbit/s and 1 ms; endless flows started
// 10 ms apart, segments of 1460 bytes without timestamps, an acknowledgement per segment. Prints the segments that the
// receivers' applications read. Routes are set by hand and the queues of the traffic control layer are taken off: ns-3
// at its best.

#include <cstdlib>
#include <iostream>
#include <string>

#include "ns3/applications-module.h"
#include "ns3/core-module.h"
#include "ns3/internet-module.h"
#include "ns3/network-module.h"
#include "ns3/point-to-point-module.h"
#include "ns3/traffic-control-module.h"

using namespace ns3;

namespace {

constexpr uint32_t kMssBytes = 1460;
constexpr uint16_t kPort = 9;

PointToPointHelper Line(const char* rate, const char* delay, const char* packets) {
    PointToPointHelper line;
    line.SetDeviceAttribute("DataRate", StringValue(rate));
    line.SetChannelAttribute("Delay", StringValue(delay));
    line.SetQueue("ns3::DropTailQueue", "MaxSize", StringValue(packets));
    return line;
}

void ConfigureTcp() {
    Config::SetDefault("ns3::TcpL4Protocol::SocketType", TypeIdValue(TcpNewReno::GetTypeId()));
    Config::SetDefault("ns3::TcpSocketBase::Sack", BooleanValue(true));
    Config::SetDefault("ns3::TcpSocketBase::Timestamp", BooleanValue(false));
    Config::SetDefault("ns3::TcpSocketBase::MinRto", TimeValue(Seconds(1)));
    Config::SetDefault("ns3::TcpSocket::SegmentSize", UintegerValue(kMssBytes));
    Config::SetDefault("ns3::TcpSocket::InitialCwnd", UintegerValue(10));
    Config::SetDefault("ns3::TcpSocket::DelAckCount", UintegerValue(1));
    Config::SetDefault("ns3::TcpSocket::SndBufSize", UintegerValue(4 << 20));
    Config::SetDefault("ns3::TcpSocket::RcvBufSize", UintegerValue(4 << 20));
}

// Hands out one /30 per line and sets the hosts' default routes.
class Network {
  public:
    Network() : bottleneck_(Line("45Mbps", "10ms", "400p")), access_(Line("100Mbps", "1ms", "1000p")) {
        addresses_.SetBase("10.0.0.0", "255.255.255.252");
        routers_.Create(2);
        stack_.SetRoutingHelper(Ipv4StaticRoutingHelper());
        stack_.Install(routers_);
        const Ipv4InterfaceContainer ends = Join(bottleneck_, routers_.Get(0), routers_.Get(1));
        RouteByDefault(routers_.Get(0), ends.GetAddress(1));
        RouteByDefault(routers_.Get(1), ends.GetAddress(0));
    }

    // A new host beside router `side`, and its address.
    std::pair<Ptr<Node>, Ipv4Address> AddHost(uint32_t side) {
        const Ptr<Node> host = CreateObject<Node>();
        stack_.Install(host);
        const Ipv4InterfaceContainer ends = Join(access_, host, routers_.Get(side));
        RouteByDefault(host, ends.GetAddress(1));
        return {host, ends.GetAddress(0)};
    }

  private:
    Ipv4InterfaceContainer Join(PointToPointHelper& line, Ptr<Node> a, Ptr<Node> b) {
        const NetDeviceContainer devices = line.Install(a, b);
        const Ipv4InterfaceContainer ends = addresses_.Assign(devices);
        TrafficControlHelper().Uninstall(devices);
        addresses_.NewNetwork();
        return ends;
    }

    void RouteByDefault(Ptr<Node> node, Ipv4Address next) {
        Ipv4StaticRoutingHelper().GetStaticRouting(node->GetObject<Ipv4>())->SetDefaultRoute(next, 1);
    }

    PointToPointHelper bottleneck_;
    PointToPointHelper access_;
    NodeContainer routers_;
    InternetStackHelper stack_;
    Ipv4AddressHelper addresses_;
};

}  // namespace

int main(int argc, char** argv) {
    if (argc != 3) {
        std::cerr << "usage: dumbbell FLOWS SECONDS\n";
        return 2;
    }
    const int flows = std::atoi(argv[1]);
    const double seconds = std::atof(argv[2]);
    ConfigureTcp();
    Network network;
    ApplicationContainer sinks;
    for (int i = 0; i < flows; ++i) {
        const auto [source, _] = network.AddHost(0);
        const auto [sink, address] = network.AddHost(1);
        BulkSendHelper sends("ns3::TcpSocketFactory", InetSocketAddress(address, kPort));
        sends.SetAttribute("MaxBytes", UintegerValue(0));
        sends.SetAttribute("SendSize", UintegerValue(kMssBytes));
        sends.Install(source).Start(MilliSeconds(10 * i));
        PacketSinkHelper receives("ns3::TcpSocketFactory", InetSocketAddress(Ipv4Address::GetAny(), kPort));
        sinks.Add(receives.Install(sink));
    }
    Simulator::Stop(Seconds(seconds));
    Simulator::Run();
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < sinks.GetN(); ++i) {
        bytes += DynamicCast<PacketSink>(sinks.Get(i))->GetTotalRx();
    }
    std::cout << bytes / kMssBytes << "\n";
    return 0;
}
