"""GSM-Agent: grade-school problems whose premises stand in a database, to be searched for (Zhu et
al., sections 3 and 4).
"""
