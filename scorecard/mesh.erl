%% A process on each of three Erlang nodes; messages go to the process of the same name at the other nodes.
-module(mesh).
-export([main/1]).

main([Role, Path | Nodes]) ->
    {ok, Log} = file:open(Path, [append, raw]),
    Names = [list_to_atom(N) || N <- Nodes],
    register(mesh, self()),
    connect(Names, 100),
    io:format("ready~n"),
    Reader = open_port({fd, 0, 1}, [in, {line, 200}]),
    loop(#{role => hd(Role), log => Log, nodes => Names, port => Reader, warm => 0, stall => 0}).

connect(_, 0) -> ok;
connect(Names, Left) ->
    case [N || N <- Names, net_kernel:connect_node(N) =/= true] of
        [] -> ok;
        _ -> timer:sleep(100), connect(Names, Left - 1)
    end.

log(#{log := Log}, Kind, Value) ->
    T = os:perf_counter(nanosecond),
    file:write(Log, io_lib:format("[~p, \"~s\", \"~s\"]~n", [T, Kind, Value])).

publish(S = #{nodes := Nodes}, Value) ->
    log(S, "pub", Value),
    [{mesh, N} ! {say, Value} || N <- Nodes],
    ok.

loop(S = #{role := Role, port := Port, warm := W}) ->
    receive
        {Port, {data, {eol, "warm"}}} ->
            publish(S, "w" ++ [Role] ++ integer_to_list(W + 1)),
            loop(S#{warm := W + 1});
        {Port, {data, {eol, "stall " ++ X}}} -> loop(S#{stall := list_to_integer(X)});
        {Port, {data, {eol, "reconnect"}}} ->
            log(S, "note", "reconnect"),
            [erlang:disconnect_node(N) || N <- maps:get(nodes, S)],
            connect(maps:get(nodes, S), 50),
            log(S, "note", "reconnected"),
            loop(S);
        {Port, {data, {eol, "ask " ++ X}}} ->
            [F, N, R] = string:split(X, " ", all),
            {Rate, _} = string:to_float(R ++ case lists:member($., R) of true -> ""; false -> ".0" end),
            Self = self(),
            Count = list_to_integer(N),
            spawn(fun() -> ask(Self, erlang:monotonic_time(microsecond), list_to_integer(F), 0, Count, 1.0e6 / Rate) end),
            loop(S);
        {Port, {data, {eol, "quit"}}} -> halt(0);
        {Port, {data, _}} -> loop(S);
        {ask, Value} -> publish(S, Value), loop(S);
        asked -> io:format("done~n"), loop(S);
        {say, Value} ->
            case {Role, hd(Value)} of
                {$A, _} -> loop(S); % it only asks
                _ ->
                    log(S, "dlv", Value),
                    S2 = case S of
                        #{stall := X, role := $C} when X > 0 -> timer:sleep(X * 1000), S#{stall := 0};
                        _ -> S
                    end,
                    case {Role, Value} of
                        {$B, [$q | Rest]} -> publish(S2, "r" ++ Rest);
                        _ -> ok
                    end,
                    loop(S2)
            end
    end.

ask(To, _, _, N, N, _) -> To ! asked;
ask(To, Start, First, I, N, Gap) ->
    Wait = Start + round(I * Gap) - erlang:monotonic_time(microsecond),
    case Wait > 1000 of true -> timer:sleep(Wait div 1000); false -> ok end,
    To ! {ask, "q" ++ integer_to_list(First + I)},
    ask(To, Start, First, I + 1, N, Gap).
