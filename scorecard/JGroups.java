// A member of a JGroups 2.12 group: JGroups ROLE LOG OWN_ADDRESS total|fifo OTHER_ADDRESS...
import java.io.*;
import java.util.*;
import org.jgroups.*;

public class JGroups extends ReceiverAdapter {
    static String role;
    static Writer log;
    static Channel channel;
    static volatile long stall;
    static int warm;

    static synchronized void log(String kind, String value) throws IOException {
        log.write("[" + System.nanoTime() + ", \"" + kind + "\", \"" + value + "\"]\n");
        log.flush();
    }

    static void publish(String value) throws Exception {
        synchronized (JGroups.class) {
            log("pub", value);
            channel.send(new Message(null, null, value.getBytes("UTF-8")));
        }
    }

    public void receive(Message m) {
        try {
            if (m.getSrc().equals(channel.getAddress())) return;
            String value = new String(m.getBuffer(), "UTF-8");
            if (role.equals("A")) return; // it only asks
            log("dlv", value);
            if (stall > 0 && role.equals("C")) {
                long s = stall;
                stall = 0;
                Thread.sleep(s);
            }
            if (role.equals("B") && value.startsWith("q")) publish("r" + value.substring(1));
        } catch (Exception e) {
            throw new RuntimeException(e);
        }
    }

    static void open(String stack) throws Exception {
        channel = new JChannel(stack);
        channel.setReceiver(new JGroups());
        channel.connect("score");
    }

    public static void main(String[] args) throws Exception {
        role = args[0];
        log = new FileWriter(args[1], true);
        StringBuilder hosts = new StringBuilder(args[2] + "[7800]");
        for (int i = 4; i < args.length; i++) hosts.append("," + args[i] + "[7800]");
        String stack = "TCP(bind_addr=" + args[2] + ";bind_port=7800;port_range=0):TCPPING(initial_hosts=" + hosts
            + ";port_range=0;timeout=1500;num_initial_members=2):MERGE2:FD_SOCK(bind_addr=" + args[2] + "):FD(timeout=10000)"
            + ":VERIFY_SUSPECT:pbcast.NAKACK(use_mcast_xmit=false;gc_lag=0):UNICAST:pbcast.STABLE:pbcast.GMS(join_timeout=3000)"
            + (args[3].equals("total") ? ":SEQUENCER" : "") + ":FRAG2";
        open(stack);
        System.out.println("ready");
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = in.readLine()) != null;) {
            final String[] w = line.split(" ");
            if (w[0].equals("warm")) publish("w" + role + ++warm);
            else if (w[0].equals("stall")) stall = (long) (Double.parseDouble(w[1]) * 1000);
            else if (w[0].equals("reconnect")) { log("note", "reconnect"); channel.close(); open(stack); log("note", "reconnected"); }
            else if (w[0].equals("quit")) System.exit(0);
            else if (w[0].equals("ask")) new Thread(() -> {
                try {
                    int first = Integer.parseInt(w[1]), n = Integer.parseInt(w[2]);
                    double gap = 1e9 / Double.parseDouble(w[3]);
                    long start = System.nanoTime();
                    for (int i = 0; i < n; i++) {
                        long wait = start + (long) (i * gap) - System.nanoTime();
                        if (wait > 0) Thread.sleep(wait / 1000000, (int) (wait % 1000000));
                        publish("q" + (first + i));
                    }
                    System.out.println("done");
                } catch (Exception e) { e.printStackTrace(); }
            }).start();
        }
        System.exit(0);
    }
}
