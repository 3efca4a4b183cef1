CASES=[]
def ends_well(s):
    assert s.stop()==0
